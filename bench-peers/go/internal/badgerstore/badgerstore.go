// Package badgerstore is Badger (v4) as an engine under test.
//
// Settings
//   - Memory: three memtables of a quarter of the budget (default is five of 64 MiB). Without
//     compression Badger's documentation recommends no block cache: blocks are read from the mapped
//     files, so the page cache is used without bound. The index of every table stays in memory
//     (default).
//   - Compression off; where values repeat, Snappy with a block cache of a quarter of the budget.
//     Values up to 1 MiB lie with their keys (default): no value log is used, but
//     in the second half of W10.
//   - No detection of conflicts: all transactions here either read or write.
//   - Without sync, a commit writes to the log of the memtable, a mapped file: it survives the
//     process.
//   - With sync, `SyncWrites`: can be told only at opening.
//   - Everything else is default: four compactors, tables of 2 MiB, blocks of 4 KiB, bloom filters.
//   - A batch is one transaction. A get begins a read transaction; a view keeps one, and one
//     iterator for all its scans, which does not prefetch values (they lie with their keys;
//     prefetching would start a goroutine for each). Values are copied out twice: Badger copies
//     them to the item.
//   - Scans step over all versions of a key that the memtable still holds (tens of thousands of the
//     popular keys after W6 A, B and F): that is why W6 E is slow, not a setting.
//   - A range is deleted by one write batch, after a look at its keys. `Sync` of the whole store
//     reaches the log of the memtable that is written; full ones are synced when they become
//     tables.
package badgerstore

import (
	"bytes"
	"errors"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
)

const (
	memtableShare  = 4
	memtablesMax   = 3
	flattenWorkers = 2
	discardRatio   = 0.5 // Of a file of the value log that is rewritten.
)

// Engine is Badger.
var Engine = engine.Engine{
	Name:                 "badger",
	BufferedSurvivesKill: true,
	About: engine.About{
		Module:    "github.com/dgraph-io/badger/v4",
		Structure: "LSM tree, values of more than 1 MiB apart",
		Settings: []string{
			"Three memtables of 1/4 of the budget; no block cache, as recommended without " +
				"compression: tables are mapped, the page cache is used without bound.",
			"No compression; no detection of conflicts.",
			"W10, values apart: ValueThreshold.",
			"With sync, SyncWrites; without, commits are in the mapped log of the memtable.",
		},
	},
	Open: open,
	OpenApart: func(dir string, memory engine.Memory, from int64) (engine.Store, error) {
		return openWith(settings(dir, memory, engine.Buffered).WithValueThreshold(from))
	},
}

type store struct {
	db *badger.DB
}

func open(dir string, memory engine.Memory, strongest engine.Commit) (engine.Store, error) {
	return openWith(settings(dir, memory, strongest))
}

func settings(dir string, memory engine.Memory, strongest engine.Commit) badger.Options {
	compression := options.None
	if data.ValuesRepeat {
		compression = options.Snappy
	}
	settings := badger.DefaultOptions(dir).
		WithLogger(nil).
		WithMetricsEnabled(false).
		WithCompression(compression).
		WithBlockCacheSize(0).
		WithDetectConflicts(false).
		WithSyncWrites(strongest == engine.Durable)
	if budget, told := memory.Bytes(); told {
		settings = settings.
			WithMemTableSize(int64(budget / memtableShare)).
			WithNumMemtables(memtablesMax)
		if data.ValuesRepeat {
			settings = settings.WithBlockCacheSize(int64(budget / memtableShare))
		}
	}
	return settings
}

func openWith(settings badger.Options) (engine.Store, error) {
	db, err := badger.Open(settings)
	if err != nil {
		return nil, err
	}
	return &store{db}, nil
}

func (store *store) Put(key, value []byte, _ engine.Commit) error {
	return store.db.Update(func(transaction *badger.Txn) error {
		return transaction.Set(key, value)
	})
}

func (store *store) PutBatch(records *data.Records, _ engine.Commit) error {
	return store.db.Update(func(transaction *badger.Txn) error {
		for number := range records.Len() {
			if err := transaction.Set(records.At(number)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (store *store) Delete(key []byte, _ engine.Commit) error {
	return store.db.Update(func(transaction *badger.Txn) error {
		return transaction.Delete(key)
	})
}

func (store *store) DeleteRange(from, to []byte, _ engine.Commit) (string, error) {
	batch := store.db.NewWriteBatch()
	defer batch.Cancel()
	err := store.db.View(func(transaction *badger.Txn) error {
		iterator := transaction.NewIterator(badger.IteratorOptions{})
		defer iterator.Close()
		for iterator.Seek(from); iterator.Valid(); iterator.Next() {
			key := iterator.Item().KeyCopy(nil) // The batch keeps it.
			if bytes.Compare(key, to) >= 0 {
				break
			}
			if err := batch.Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
	return "one write batch", errors.Join(err, batch.Flush())
}

func (store *store) Get(key, out []byte) ([]byte, bool, error) {
	transaction := store.db.NewTransaction(false)
	defer transaction.Discard()
	return get(transaction, key, out)
}

func get(transaction *badger.Txn, key, out []byte) ([]byte, bool, error) {
	item, err := transaction.Get(key)
	if err == badger.ErrKeyNotFound {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	err = item.Value(func(value []byte) error {
		out = append(out, value...)
		return nil
	})
	return out, err == nil, err
}

func (store *store) View() (engine.View, error) {
	return &view{transaction: store.db.NewTransaction(false)}, nil
}

func (store *store) Sync() error {
	return store.db.Sync()
}

func (store *store) Flush() (engine.Offered, error) {
	return engine.No, nil
}

func (store *store) Compact() (engine.Offered, error) {
	if err := store.db.Flatten(flattenWorkers); err != nil {
		return engine.No, err
	}
	for {
		switch err := store.db.RunValueLogGC(discardRatio); err {
		case nil: // There may be more.
		case badger.ErrNoRewrite:
			return engine.Yes, nil
		default:
			return engine.No, err
		}
	}
}

func (store *store) Figures() map[string]float64 {
	tables := 0
	for _, level := range store.db.Levels() {
		tables += level.NumTables
	}
	return map[string]float64{"tables": float64(tables)}
}

func (store *store) Close() error {
	return store.db.Close()
}

// view is a read transaction, and an iterator for each direction once it was scanned.
type view struct {
	transaction      *badger.Txn
	forward, reverse *badger.Iterator
}

func (view *view) Get(key, out []byte) ([]byte, bool, error) {
	return get(view.transaction, key, out)
}

// seek puts an iterator at the first entry of walk: the iterator, and how many to visit at most.
func (view *view) seek(walk engine.Walk) (*badger.Iterator, uint64) {
	iterator, limit, key := &view.forward, ^uint64(0), []byte(nil)
	switch walk.Direction {
	case engine.From:
		key, limit = walk.Key, walk.Limit
	case engine.Reverse:
		iterator = &view.reverse
	}
	if *iterator == nil {
		*iterator = view.transaction.NewIterator(badger.IteratorOptions{
			Reverse: walk.Direction == engine.Reverse,
		})
	}
	(*iterator).Seek(key) // Nothing is the first entry in the iterator's direction.
	return *iterator, limit
}

func (view *view) Scan(walk engine.Walk, visit func(key, value []byte)) (uint64, error) {
	iterator, limit := view.seek(walk)
	count := uint64(0)
	var item *badger.Item
	show := func(value []byte) error {
		visit(item.Key(), value)
		return nil
	}
	for ; iterator.Valid() && count < limit; iterator.Next() {
		item = iterator.Item()
		if err := item.Value(show); err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}

func (view *view) Sum(walk engine.Walk) (data.Seen, error) {
	var seen data.Seen
	iterator, limit := view.seek(walk)
	var item *badger.Item
	add := func(value []byte) error {
		seen.Add(item.Key(), value)
		return nil
	}
	for ; iterator.Valid() && seen.Count < limit; iterator.Next() {
		item = iterator.Item()
		if err := item.Value(add); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

func (view *view) Close() error {
	for _, iterator := range []*badger.Iterator{view.forward, view.reverse} {
		if iterator != nil {
			iterator.Close()
		}
	}
	view.transaction.Discard()
	return nil
}
