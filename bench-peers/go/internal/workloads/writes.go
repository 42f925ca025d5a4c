package workloads

import (
	"time"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
)

const (
	// Entries of a batch where a workload does not say otherwise.
	batchLen = 1000
	// Bytes of a value of the W3 store.
	valueLen = 100
)

// writes is what loads and overwrites have in common: writing in batches.
type writes struct {
	shape    data.KeyShape
	valueLen int
	version  uint64
	batchLen uint64
}

// loadOf is like W3: 100 bytes a value, load version, batches of 1000.
func loadOf(shape data.KeyShape) writes {
	return writes{shape, valueLen, data.VersionLoad, batchLen}
}

// entrySize is the bytes of an entry.
func (writes writes) entrySize() uint64 {
	return uint64(writes.shape.KeyLen() + writes.valueLen)
}

// written is how long writing took.
type written struct {
	// In the engine, with the sync at the end.
	busy time.Duration
	// The sync at the end.
	sync time.Duration
	// From begin to end, with making the data and what happened between batches.
	wall time.Duration
}

// run writes operations 0..count in unsynced batches, operation j to the key with index indexOf(j),
// then syncs once. After each batch `between` learns, off the clock, how many operations are done.
func (writes writes) run(
	store engine.Store, count uint64, indexOf func(uint64) uint64, between func(uint64) error,
) (written, error) {
	start := measure.Now()
	var watch, sync measure.Stopwatch
	var records data.Records
	put := func() error { return store.PutBatch(&records, engine.Buffered) }
	for done := uint64(0); done < count; {
		end := min(count, done+writes.batchLen)
		records.Refill(writes.shape, done, end, indexOf, writes.valueLen, writes.version)
		if err := watch.Time(put); err != nil {
			return written{}, err
		}
		done = end
		if err := between(done); err != nil {
			return written{}, err
		}
	}
	err := sync.Time(store.Sync)
	return written{watch.Total + sync.Total, sync.Total, measure.Now() - start}, err
}

// runInOrder writes entries 0..count in the order of their indexes.
func (writes writes) runInOrder(store engine.Store, count uint64) (written, error) {
	return writes.run(store, count, data.Same, func(uint64) error { return nil })
}
