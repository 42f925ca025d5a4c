package measure

import (
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"lithedb/bench-peers/internal/report"
)

const (
	// Three significant digits up to a minute; slower counts as a minute.
	latencyNSMax  = 60_000_000_000
	latencyDigits = 3
)

// Latency is a histogram of one kind of operation.
type Latency struct {
	histogram *hdrhistogram.Histogram
}

// NewLatency has counted nothing yet.
func NewLatency() *Latency {
	return &Latency{histogram: hdrhistogram.New(1, latencyNSMax, latencyDigits)}
}

// Record counts one operation.
func (latency *Latency) Record(took time.Duration) {
	value := min(max(took.Nanoseconds(), 1), latencyNSMax)
	if err := latency.histogram.RecordValue(value); err != nil {
		panic(fmt.Sprintf("%d ns is within the bounds: %v", value, err))
	}
}

// Merge adds what another thread counted.
func (latency *Latency) Merge(other *Latency) {
	latency.histogram.Merge(other.histogram)
}

// Count of operations.
func (latency *Latency) Count() uint64 {
	return uint64(latency.histogram.TotalCount())
}

// QuantileUS is the latency that a quantile (0 to 1) of the operations did not exceed, in
// microseconds. The rank is rounded up, as the Rust histogram does.
func (latency *Latency) QuantileUS(quantile float64) float64 {
	count := float64(latency.histogram.TotalCount())
	if count == 0 {
		return 0
	}
	rank := max(math.Ceil(quantile*count), 1)
	return float64(latency.histogram.ValueAtQuantile(100*rank/count)) / 1e3
}

// MaxUS is the slowest operation, in microseconds.
func (latency *Latency) MaxUS() float64 {
	return float64(latency.histogram.Max()) / 1e3
}

// Rows are p50, p99, p99.9 named `<prefix> p50` and so on; none if nothing was counted.
func (latency *Latency) Rows(workload, prefix string) []report.Row {
	if latency.Count() == 0 {
		return nil
	}
	var rows []report.Row
	for _, one := range []struct {
		name     string
		quantile float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}} {
		row := report.New(workload, prefix+" "+one.name, latency.QuantileUS(one.quantile), "us")
		rows = append(rows, row.With("max_us", latency.MaxUS()).With("count", latency.Count()))
	}
	return rows
}
