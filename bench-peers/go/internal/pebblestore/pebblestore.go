// Package pebblestore is Pebble (v2) as an engine under test.
//
// Settings
//   - Memory: the whole budget is the block cache, from which Pebble itself takes the memory of its
//     memtables. Memtables of an eighth of the budget, of which up to four may wait, as in
//     CockroachDB (there 64 MiB each).
//   - Compression off at all levels, or its fastest where values repeat. Bloom filters of 10 bits per key at all levels.
//   - Up to two compactions at once: as many as there are cores, default is one.
//   - The newest format. Everything else is default: blocks of 4 KiB, values with their keys, level
//     0 (CockroachDB compacts it from 2 sublevels on instead of 4, and never stops writes: tried
//     with a million keys, that wrote 40 % more for slower loads and no faster reads).
//   - Without sync (`NoSync`), a write is acknowledged when it is in the memtable; a goroutine
//     writes the log to the file a moment later. So a kill can lose the last writes.
//   - With sync (`Sync`), groups of writers share one sync of the log. `Sync` of the whole store is
//     an empty log record with sync.
//   - A view is a snapshot, with one iterator that all scans of the view use. A get copies the
//     value once, out of the block.
package pebblestore

import (
	"context"
	"errors"
	"log"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
)

const (
	memtableShare  = 8
	memtablesMax   = 4
	bitsPerKey     = 10
	compactionsMax = 2
	batchOverhead  = 16 // Bytes that a batch adds to an entry, at most, and to itself.
	pollInterval   = 5 * time.Millisecond
)

// Engine is Pebble.
var Engine = engine.Engine{
	Name:                 "pebble",
	BufferedSurvivesKill: false,
	About: engine.About{
		Module:    "github.com/cockroachdb/pebble/v2",
		Structure: "LSM tree",
		Why:       "without sync, the log is written to the file by a goroutine, a moment later",
		Settings: []string{
			"Block cache of the whole budget, memtables (1/8 each, up to 4) taken from it.",
			"No compression; bloom filters of 10 bits per key at all levels.",
			"Up to two compactions at once; the newest format.",
		},
	},
	Open: open,
}

type store struct {
	db *pebble.DB
}

func open(dir string, memory engine.Memory, _ engine.Commit) (engine.Store, error) {
	options := &pebble.Options{
		FormatMajorVersion:         pebble.FormatNewest,
		CompactionConcurrencyRange: func() (int, int) { return 1, compactionsMax },
		Logger:                     quiet{},
	}
	for level := range options.Levels {
		options.Levels[level].FilterPolicy = bloom.FilterPolicy(bitsPerKey)
	}
	compression := pebble.DBCompressionNone
	if data.ValuesRepeat {
		compression = pebble.DBCompressionFastest
	}
	options.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return compression })
	if budget, told := memory.Bytes(); told {
		options.CacheSize = int64(budget)
		options.MemTableSize = budget / memtableShare
		options.MemTableStopWritesThreshold = memtablesMax
	}
	db, err := pebble.Open(dir, options)
	if err != nil {
		return nil, err
	}
	return &store{db}, nil
}

// quiet says only what goes wrong.
type quiet struct{}

func (quiet) Infof(string, ...any)               {}
func (quiet) Errorf(format string, words ...any) { log.Printf(format, words...) }
func (quiet) Fatalf(format string, words ...any) {
	log.Printf(format, words...)
	os.Exit(1)
}

func writeOptions(commit engine.Commit) *pebble.WriteOptions {
	if commit == engine.Durable {
		return pebble.Sync
	}
	return pebble.NoSync
}

func (store *store) Put(key, value []byte, commit engine.Commit) error {
	return store.db.Set(key, value, writeOptions(commit))
}

func (store *store) PutBatch(records *data.Records, commit engine.Commit) error {
	batch := store.db.NewBatchWithSize(records.Size() + batchOverhead*(records.Len()+1))
	for number := range records.Len() {
		key, value := records.At(number)
		if err := batch.Set(key, value, nil); err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	return errors.Join(batch.Commit(writeOptions(commit)), batch.Close())
}

func (store *store) Delete(key []byte, commit engine.Commit) error {
	return store.db.Delete(key, writeOptions(commit))
}

func (store *store) DeleteRange(from, to []byte, commit engine.Commit) (string, error) {
	return "one operation", store.db.DeleteRange(from, to, writeOptions(commit))
}

func (store *store) Get(key, out []byte) ([]byte, bool, error) {
	return get(store.db, key, out)
}

// get reads from the database or from a snapshot.
func get(reader pebble.Reader, key, out []byte) ([]byte, bool, error) {
	value, closer, err := reader.Get(key)
	if err == pebble.ErrNotFound {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	out = append(out, value...)
	return out, true, closer.Close()
}

func (store *store) View() (engine.View, error) {
	return &view{snapshot: store.db.NewSnapshot()}, nil
}

func (store *store) Sync() error {
	return store.db.LogData(nil, pebble.Sync)
}

// Flush is the memtables to level 0, and the compactions that this asks for.
func (store *store) Flush() (engine.Offered, error) {
	if err := store.db.Flush(); err != nil {
		return engine.No, err
	}
	// Two looks: between two compactions there is a moment without one.
	for idle := 0; idle < 2; time.Sleep(pollInterval) {
		idle++
		if store.db.Metrics().Compact.NumInProgress > 0 {
			idle = 0
		}
	}
	return engine.Yes, nil
}

func (store *store) Compact() (engine.Offered, error) {
	first, last, err := store.bounds()
	if err != nil || first == nil {
		return engine.No, err
	}
	// The end is excluded.
	return engine.Yes, store.db.Compact(context.Background(), first, append(last, 0), true)
}

// bounds are copies of the first and the last key; nil of an empty store.
func (store *store) bounds() (first, last []byte, err error) {
	iterator, err := store.db.NewIter(nil)
	if err != nil {
		return nil, nil, err
	}
	if iterator.First() {
		first = append(first, iterator.Key()...)
	}
	if iterator.Last() {
		last = append(last, iterator.Key()...)
	}
	return first, last, errors.Join(iterator.Error(), iterator.Close())
}

func (store *store) Figures() map[string]float64 {
	metrics := store.db.Metrics()
	total := metrics.Total()
	return map[string]float64{
		"own_write_amplification": total.WriteAmp(),
		"read_amplification":      float64(metrics.ReadAmp()),
		"compactions":             float64(metrics.Compact.Count),
		"memory_memtable":         float64(metrics.MemTable.Size),
		"memory_cache":            float64(metrics.BlockCache.Size),
	}
}

func (store *store) Close() error {
	return store.db.Close()
}

// view is a snapshot, and the iterator on it once something was scanned.
type view struct {
	snapshot *pebble.Snapshot
	iterator *pebble.Iterator
}

func (view *view) Get(key, out []byte) ([]byte, bool, error) {
	return get(view.snapshot, key, out)
}

// seek puts the iterator at the first entry of walk: the iterator, and how many to visit at most.
func (view *view) seek(walk engine.Walk) (*pebble.Iterator, uint64, error) {
	if view.iterator == nil {
		iterator, err := view.snapshot.NewIter(nil)
		if err != nil {
			return nil, 0, err
		}
		view.iterator = iterator
	}
	switch walk.Direction {
	case engine.From:
		view.iterator.SeekGE(walk.Key)
		return view.iterator, walk.Limit, nil
	case engine.Reverse:
		view.iterator.Last()
	default:
		view.iterator.First()
	}
	return view.iterator, ^uint64(0), nil
}

func (view *view) Scan(walk engine.Walk, visit func(key, value []byte)) (uint64, error) {
	iterator, limit, err := view.seek(walk)
	if err != nil {
		return 0, err
	}
	count := uint64(0)
	for valid := iterator.Valid(); valid && count < limit; count++ {
		visit(iterator.Key(), iterator.Value())
		if walk.Direction == engine.Reverse {
			valid = iterator.Prev()
		} else {
			valid = iterator.Next()
		}
	}
	return count, iterator.Error()
}

func (view *view) Sum(walk engine.Walk) (data.Seen, error) {
	var seen data.Seen
	iterator, limit, err := view.seek(walk)
	if err != nil {
		return seen, err
	}
	for valid := iterator.Valid(); valid && seen.Count < limit; {
		seen.Add(iterator.Key(), iterator.Value())
		if walk.Direction == engine.Reverse {
			valid = iterator.Prev()
		} else {
			valid = iterator.Next()
		}
	}
	return seen, iterator.Error()
}

func (view *view) Close() error {
	var err error
	if view.iterator != nil {
		err = view.iterator.Close()
	}
	return errors.Join(err, view.snapshot.Close())
}
