package workloads

import (
	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

// How often W11 looks at the size, off the clock.
const sizeSamples = 50

// W11: as many uniform random overwrites as the W3 store has keys, in batches of 1000, one sync at
// the end, inside the time. Sizes: the largest while it runs, after the sync, after a flush, after
// vacuum or compaction, at close.
func runOverwrites(context *Context) error {
	keys, writes := context.Job.Keys, loadOf(data.Random16)
	writes.version = versionOverwrite
	dir := context.store(storeLarge)
	indexOf := func(j uint64) uint64 {
		return data.Pick(data.Operation(streamOverwrites, 0, j), keys)
	}
	store, err := context.open(dir)
	if err != nil {
		return err
	}
	costs := measure.BeginCosts(dir)
	var largest, sampled uint64
	written, err := writes.run(store, keys, indexOf, func(done uint64) error {
		if (done-sampled)*sizeSamples < keys {
			return nil
		}
		sampled = done
		size, err := measure.SizeOf(dir)
		largest = max(largest, size.Allocated)
		return err
	})
	if err != nil {
		return err
	}
	if err := costs.Mark("synced"); err != nil {
		return err
	}
	row := report.New("W11", "overwrites", measure.Rate(keys, written.busy), "ops/s").
		With("wall_s", written.wall.Seconds()).
		With("sync_ms", measure.Milliseconds(written.sync))
	if err := flushStep.take(store, costs, row); err != nil {
		return err
	}
	after := measure.BeginCosts(dir)
	if err := measure.WaitUntilStill(dir); err != nil {
		return err
	}
	if err := after.Mark("left_alone"); err != nil {
		return err
	}
	if err := closeAfter(compactStep, store, after, row); err != nil {
		return err
	}

	isOverwritten := make([]bool, keys)
	for j := range keys {
		isOverwritten[indexOf(j)] = true
	}
	store, err = context.open(dir)
	if err != nil {
		return err
	}
	live, err := checkEntries(store, data.Random16, keys, func(index uint64) []uint64 {
		if index < keys && isOverwritten[index] {
			return overwritten
		}
		return versions
	})
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	writtenSize, liveSize := keys*writes.entrySize(), live*writes.entrySize()
	context.report(row)
	context.report(costs.Rows("W11", "", writtenSize, liveSize)...)
	context.report(after.Rows("W11", "maintenance", writtenSize, liveSize)...)
	context.report(report.New("W11", "largest directory / data while running",
		float64(largest)/float64(liveSize), "x"))
	return nil
}
