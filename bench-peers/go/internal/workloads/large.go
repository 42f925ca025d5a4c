package workloads

import (
	"strings"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	storeLargeValues = "w10"
	largeValues      = 20_000
	largeReads       = 20_000
	largeValueLen    = 16 << 10
	largeBatchLen    = 16
	largeApart       = "values apart"
	largeApartFrom   = 4 << 10 // Values of so many bytes lie apart.
)

// W10: 20,000 values of 16 KiB in batches of 16, one sync at the end, inside the time; 20,000
// random reads, each value copied out. By default, and once more with values apart from their keys
// where the engine can do that.
func runLargeValues(context *Context) error {
	if err := loadAndReadLarge(context, "", context.open); err != nil {
		return err
	}
	if context.Engine.OpenApart == nil {
		return nil
	}
	return loadAndReadLarge(context, largeApart, func(dir string) (engine.Store, error) {
		return context.Engine.OpenApart(dir, context.Job.Memory, largeApartFrom)
	})
}

// loadAndReadLarge puts which in front of the names of figures.
func loadAndReadLarge(
	context *Context, which string, open func(dir string) (engine.Store, error),
) error {
	keys, shape := context.count(largeValues), data.Random16
	writes := writes{shape, largeValueLen, data.VersionLoad, largeBatchLen}
	size := keys * writes.entrySize()
	dir, err := context.freshStore(storeLargeValues)
	if err != nil {
		return err
	}
	costs := measure.BeginCosts(dir)
	store, err := open(dir)
	if err != nil {
		return err
	}
	written, err := writes.runInOrder(store, keys)
	if err != nil {
		return err
	}
	if err := costs.Mark("synced"); err != nil {
		return err
	}
	read, err := gets{
		stream: streamLargeGets, count: context.count(largeReads), threads: 1, keys: keys,
		valueLen: largeValueLen, choice: uniform, source: newest,
	}.run(store)
	if err != nil {
		return err
	}
	seen, err := checkLoad(store, shape, keys, largeValueLen)
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	if err := costs.Mark("closed"); err != nil {
		return err
	}
	megabytes := float64(size) / 1e6 / written.busy.Seconds()
	each := measure.MicrosecondsEach(read.count, read.busy)
	named := func(figure string) string { return strings.TrimSpace(which + " " + figure) }
	context.report(
		report.New("W10", named("load"), megabytes, "MB/s").With("checksum", seen.Checksum),
		report.New("W10", named("random reads"), each, "us").With("checksum", read.checksum),
	)
	context.report(costs.Rows("W10", which, size, size)...)
	return context.removeStore(storeLargeValues)
}
