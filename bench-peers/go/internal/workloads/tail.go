package workloads

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	tailReads          = 100_000
	tailReadsPerSecond = 5000
	tailInterval       = time.Second / tailReadsPerSecond
	// A sleeping thread wakes up late by about this much: the rest is waited for awake.
	wakeUpMargin = 100 * time.Microsecond
	// The load takes its keys from here on.
	tailLoadFirst = 1 << 36
)

// W15: the tail. One thread reads zipf keys of the W3 store at a fixed rate, while another loads
// new random keys in batches of 1000 as fast as it can.
//
// The latency of a read counts from when it was due, not from when it began: reads that had to wait
// behind a slow one show it (coordinated omission corrected). Batches follow one another, so each
// counts from when it began.
func runTail(context *Context) error {
	keys, reads := context.Job.Keys, context.count(tailReads)
	zipf := data.NewZipf(keys)
	store, err := context.open(context.store(storeLarge))
	if err != nil {
		return err
	}
	// Twice as many goroutines at once as there are cores: else the reader, when it wakes up, waits
	// for a turn of the Go scheduler (up to 10 ms) behind the load and the compactions. So the system
	// divides the cores, as for every engine.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0)))
	var stop atomic.Bool
	latency, batches, loadRate := measure.NewLatency(), measure.NewLatency(), 0.0
	_, _, err = onThreads(2, func(thread uint64) (_ struct{}, err error) {
		if thread == 0 {
			loadRate, err = loadUntil(store, &stop, batches)
		} else {
			defer stop.Store(true)
			err = readAtRate(store, zipf, reads, latency)
		}
		return struct{}{}, err
	})
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	for _, one := range []struct {
		name     string
		quantile float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"p99.99", 0.9999}} {
		name := "read " + one.name + " under load"
		context.report(report.New("W15", name, latency.QuantileUS(one.quantile), "us").
			With("reads_per_s", uint64(tailReadsPerSecond)).
			With("load_ops_per_s", loadRate))
	}
	context.report(report.New("W15", "longest stall of a read", latency.MaxUS()/1e3, "ms"))
	for _, one := range []struct {
		name     string
		quantile float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}} {
		name := fmt.Sprintf("write of %d %s under load", batchLen, one.name)
		context.report(report.New("W15", name, batches.QuantileUS(one.quantile), "us"))
	}
	context.report(
		report.New("W15", "longest stall of a write", batches.MaxUS()/1e3, "ms"),
		report.New("W15", "load beside the reads", loadRate, "ops/s"),
	)
	return nil
}

// loadUntil says how many entries per second were loaded, with making them; latencies are those of
// the batches alone.
func loadUntil(
	store engine.Store, stop *atomic.Bool, batches *measure.Latency,
) (float64, error) {
	start, loaded := measure.Now(), uint64(0)
	var records data.Records
	put := func() error { return store.PutBatch(&records, engine.Buffered) }
	for !stop.Load() {
		first := tailLoadFirst + loaded
		end := first + batchLen
		records.Refill(data.Random16, first, end, data.Same, valueLen, data.VersionLoad)
		took, err := measure.Timed(put)
		if err != nil {
			return 0, err
		}
		batches.Record(took)
		loaded += batchLen
	}
	return measure.Rate(loaded, measure.Now()-start), nil
}

func readAtRate(
	store engine.Store, zipf *data.Zipf, reads uint64, latency *measure.Latency,
) error {
	// A thread of its own, so that the sleep is the system's, as it is for every engine: the timers
	// of the Go scheduler would be late by more than a read takes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var checker data.ValueChecker
	var key, value []byte
	due := measure.Now()
	for j := range reads {
		index := zipf.Index(data.Operation(streamTailGets, 0, j))
		key = data.Random16.Append(index, key[:0])
		waitUntil(due)
		out, found, err := store.Get(key, value[:0])
		latency.Record(max(measure.Now()-due, 0))
		if err != nil {
			return err
		}
		if _, whole := checker.VersionOf(index, out, versions); !found || !whole {
			return fmt.Errorf("W15: key %d found: %v, or a wrong value", index, found)
		}
		value = out
		due += tailInterval
	}
	return nil
}

func waitUntil(due time.Duration) {
	if left := due - measure.Now(); left > wakeUpMargin {
		span := unix.NsecToTimespec(int64(left - wakeUpMargin))
		// If it ends early, the rest is waited for awake.
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &span, nil)
	}
	for measure.Now() < due {
	}
}
