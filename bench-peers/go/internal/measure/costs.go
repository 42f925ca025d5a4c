package measure

import (
	"strings"
	"time"

	"lithedb/bench-peers/internal/report"
)

const (
	lookEvery = 250 * time.Millisecond
	// A directory that was the same for so many looks is taken to be left alone.
	looksStill = 6
	// It is waited for no longer than this: a minute.
	looksMax = 240
	mib      = 1 << 20
)

// Costs is what a workload costs beside time, looked at at several points: write amplification,
// directory size, processor time, peak memory.
type Costs struct {
	dir    string
	before Process
	points []point
}

type point struct {
	name    string
	process Process
	size    DirectorySize
}

// BeginCosts counts from now on.
func BeginCosts(dir string) *Costs {
	return &Costs{dir: dir, before: ProcessNow()}
}

// Mark takes the figures now.
func (costs *Costs) Mark(name string) error {
	process := ProcessNow().Since(costs.before)
	size, err := SizeOf(costs.dir)
	costs.points = append(costs.points, point{name, process, size})
	return err
}

// Rows are named `<prefix> write amplification` and so on: the figure is that of the last point,
// the details are those of all. `written` and `live` are the bytes of keys and values that were
// given to the store, and that it holds.
func (costs *Costs) Rows(workload, prefix string, written, live uint64) []report.Row {
	if len(costs.points) == 0 {
		return nil
	}
	last := costs.points[len(costs.points)-1]
	named := func(name string) string { return strings.TrimSpace(prefix + " " + name) }
	var rows []report.Row
	if bytes := last.process.StorageBytesWritten; bytes != nil {
		row := report.New(workload, named("write amplification"), over(*bytes, written), "x")
		for _, point := range costs.points {
			if bytes := point.process.StorageBytesWritten; bytes != nil {
				row = row.With(point.name, over(*bytes, written))
			}
		}
		if bytes := last.process.CallBytesWritten; bytes != nil {
			row = row.With("by_calls", over(*bytes, written))
		}
		rows = append(rows, row.With("data_bytes", written))
	}
	row := report.New(workload, named("directory / data"), over(last.size.Allocated, live), "x")
	for _, point := range costs.points {
		row = row.With(point.name, over(point.size.Allocated, live))
	}
	rows = append(rows,
		row.With("apparent", over(last.size.Apparent, live)).With("files", last.size.Files))
	rows = append(rows, memoryRows(workload, named("peak memory"), last.process.MemoryPeak)...)
	return append(rows, report.New(workload, named("cpu"), last.process.CPU.Seconds(), "s"))
}

// WaitUntilStill waits until the directory has not changed in size for a while: until what an
// engine does by itself when it is left alone is done.
func WaitUntilStill(dir string) error {
	size, err := SizeOf(dir)
	if err != nil {
		return err
	}
	still := 0
	for looks := 0; looks < looksMax && still < looksStill; looks++ {
		time.Sleep(lookEvery)
		now, err := SizeOf(dir)
		if err != nil {
			return err
		}
		if now.Allocated == size.Allocated && now.Files == size.Files {
			still++
		} else {
			still = 0
		}
		size = now
	}
	return nil
}

// PeakMemoryRows is the most memory that this process ever held; none where the system does not
// tell.
func PeakMemoryRows(workload, metric string) []report.Row {
	return memoryRows(workload, metric, ProcessNow().MemoryPeak)
}

func memoryRows(workload, metric string, bytes *uint64) []report.Row {
	if bytes == nil {
		return nil
	}
	return []report.Row{report.New(workload, metric, float64(*bytes)/mib, "MiB")}
}

func over(bytes, data uint64) float64 {
	return float64(bytes) / float64(max(data, 1))
}
