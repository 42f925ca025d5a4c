package workloads

import (
	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const storeAscending = "w3-ascending"

func loadRandom(context *Context) error {
	return load(context, storeLarge, data.Random16, "random")
}

func loadAscending(context *Context) error {
	if err := load(context, storeAscending, data.Ascending16, "ascending"); err != nil {
		return err
	}
	return context.removeStore(storeAscending)
}

// W3: load 5M x key16 / 100 B in batches of 1000, no sync until one at the end, inside the time.
//
// What it costs is looked at after the sync, after a flush (where the engine has one), and after
// the store was closed. Each batch is made off the clock; the wall time with that is a detail.
func load(context *Context, name string, shape data.KeyShape, prefix string) error {
	keys, writes := context.Job.Keys, loadOf(shape)
	dir, err := context.freshStore(name)
	if err != nil {
		return err
	}
	costs := measure.BeginCosts(dir)
	store, err := context.open(dir)
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
	row := report.New("W3", prefix, measure.Rate(keys, written.busy), "ops/s").
		With("wall_s", written.wall.Seconds()).
		With("sync_ms", measure.Milliseconds(written.sync))
	if err := closeAfter(flushStep, store, costs, row); err != nil {
		return err
	}
	size := keys * writes.entrySize()
	costRows := costs.Rows("W3", prefix, size, size)

	store, err = context.open(dir)
	if err != nil {
		return err
	}
	seen, err := checkLoad(store, shape, keys, writes.valueLen)
	if err != nil {
		return err
	}
	context.report(row.With("checksum", seen.Checksum))
	context.report(costRows...)
	return store.Close()
}

// closingStep is something that an engine may offer before its store is closed.
type closingStep struct {
	// Name of the point in the costs, and of the detail of the row.
	point, detail string
	do            func(engine.Store) (engine.Offered, error)
}

var (
	flushStep   = closingStep{"flushed", "flush_ms", engine.Store.Flush}
	compactStep = closingStep{"compacted", "compact_ms", engine.Store.Compact}
)

// take does the step if the engine offers it, looks at the costs after it, and puts its time into a
// row.
func (step closingStep) take(store engine.Store, costs *measure.Costs, row report.Row) error {
	var offered engine.Offered
	took, err := measure.Timed(func() (err error) {
		offered, err = step.do(store)
		return err
	})
	if err != nil || offered == engine.No {
		return err
	}
	row.With(step.detail, measure.Milliseconds(took))
	return costs.Mark(step.point)
}

// closeAfter takes a step, closes the store, and puts times and the engine's own figures into a
// row.
func closeAfter(
	step closingStep, store engine.Store, costs *measure.Costs, row report.Row,
) error {
	if err := step.take(store, costs, row); err != nil {
		return err
	}
	for name, figure := range store.Figures() {
		row.With(name, figure)
	}
	took, err := measure.Timed(store.Close)
	if err != nil {
		return err
	}
	row.With("close_ms", measure.Milliseconds(took))
	return costs.Mark("closed")
}
