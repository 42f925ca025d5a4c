// Package bboltstore is bbolt as an engine under test.
//
// Settings
//   - Memory: bbolt has no cache of its own and cannot be told: it maps the file, and uses the page
//     cache without bound. The map is large from the beginning, so that readers never wait for it
//     to grow.
//   - The list of free pages is a map in memory (`FreelistMapType`) that is not written with each
//     commit (`NoFreelistSync`), as in etcd; opening scans the file for them instead. No
//     statistics.
//   - Without sync, `NoSync`: a commit writes its pages, then the meta page, to the page cache: it
//     survives the process. Only when the file grows (by 16 MiB) it is synced (`NoGrowSync` is not
//     safe on ext4).
//   - With sync, its default: pages, sync, meta page, sync. A writer that is alone commits by
//     itself; those that come while others write share one transaction (`Batch`, which waits 100
//     microseconds for more of them; default is 10 milliseconds).
//   - Everything else is default: pages of the system's size, split when full into halves.
//   - A get begins a read transaction, as its API wants it; a view keeps one, and one cursor for
//     all its scans. Values are copied once, out of the map.
//   - A range is deleted by a cursor in one transaction.
//   - To give space back, `bbolt compact` copies the file; here the same function, and the copy
//     takes the place of the file.
package bboltstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
)

const (
	fileName     = "store.bbolt"
	compactName  = "compacted.bbolt"
	fileMode     = 0o644
	mapSize      = 64 << 30 // Address space, not memory: room for the largest store.
	batchDelay   = 100 * time.Microsecond
	compactBatch = 64 << 10 // What `bbolt compact` takes: bytes of a transaction.
)

var bucketName = []byte("bench")

// Engine is bbolt.
var Engine = engine.Engine{
	Name:                 "bbolt",
	BufferedSurvivesKill: true,
	About: engine.About{
		Module:    "go.etcd.io/bbolt",
		Structure: "B+-tree, copy on write, in mapped memory",
		Settings: []string{
			"Uses the page cache without bound: it has no cache of its own.",
			"Free pages in a map that is not written with each commit, as in etcd.",
			"Without sync, NoSync (pages are written, not synced); with sync, its default: the " +
				"pages, then the meta page.",
			"Durable writers that come while others write share a transaction (Batch, 100 us).",
		},
	},
	Open: open,
}

type store struct {
	db        *bolt.DB
	path      string
	strongest engine.Commit
	// Durable writes under way.
	writers atomic.Int64
}

func open(dir string, _ engine.Memory, strongest engine.Commit) (engine.Store, error) {
	store := &store{path: filepath.Join(dir, fileName), strongest: strongest}
	return store, store.open()
}

func (store *store) open() error {
	db, err := openFile(store.path, store.strongest)
	if err != nil {
		return err
	}
	db.MaxBatchDelay = batchDelay
	store.db = db
	exists := false
	err = db.View(func(transaction *bolt.Tx) error {
		exists = transaction.Bucket(bucketName) != nil
		return nil
	})
	if err != nil || exists {
		return err // To open must not cost a commit.
	}
	return db.Update(func(transaction *bolt.Tx) error {
		_, err := transaction.CreateBucket(bucketName)
		return err
	})
}

func openFile(path string, strongest engine.Commit) (*bolt.DB, error) {
	return bolt.Open(path, fileMode, &bolt.Options{
		NoSync:          strongest == engine.Buffered,
		NoFreelistSync:  true,
		FreelistType:    bolt.FreelistMapType,
		InitialMmapSize: mapSize,
		NoStatistics:    true,
	})
}

// write runs change in a transaction: its own, or one that it shares.
func (store *store) write(commit engine.Commit, change func(*bolt.Bucket) error) error {
	inBucket := func(transaction *bolt.Tx) error {
		return change(transaction.Bucket(bucketName))
	}
	if commit == engine.Buffered {
		return store.db.Update(inBucket)
	}
	alone := store.writers.Add(1) == 1
	defer store.writers.Add(-1)
	if alone {
		return store.db.Update(inBucket)
	}
	return store.db.Batch(inBucket)
}

func (store *store) Put(key, value []byte, commit engine.Commit) error {
	return store.write(commit, func(bucket *bolt.Bucket) error { return bucket.Put(key, value) })
}

func (store *store) PutBatch(records *data.Records, commit engine.Commit) error {
	return store.write(commit, func(bucket *bolt.Bucket) error {
		for number := range records.Len() {
			if err := bucket.Put(records.At(number)); err != nil {
				return err
			}
		}
		return nil
	})
}

func (store *store) Delete(key []byte, commit engine.Commit) error {
	return store.write(commit, func(bucket *bolt.Bucket) error { return bucket.Delete(key) })
}

func (store *store) DeleteRange(from, to []byte, commit engine.Commit) (string, error) {
	return "one transaction", store.write(commit, func(bucket *bolt.Bucket) error {
		cursor := bucket.Cursor()
		for key, _ := cursor.Seek(from); key != nil && bytes.Compare(key, to) < 0; {
			if err := cursor.Delete(); err != nil {
				return err
			}
			// A step of the cursor may skip an entry after a deletion: it looks for the next one.
			key, _ = cursor.Seek(key)
		}
		return nil
	})
}

func (store *store) Get(key, out []byte) ([]byte, bool, error) {
	transaction, err := store.db.Begin(false)
	if err != nil {
		return out, false, err
	}
	value := transaction.Bucket(bucketName).Get(key)
	out = append(out, value...)
	return out, value != nil, transaction.Rollback()
}

func (store *store) View() (engine.View, error) {
	transaction, err := store.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &view{transaction: transaction, bucket: transaction.Bucket(bucketName)}, nil
}

func (store *store) Sync() error {
	return store.db.Sync()
}

func (store *store) Flush() (engine.Offered, error) {
	return engine.No, nil
}

func (store *store) Compact() (engine.Offered, error) {
	path := filepath.Join(filepath.Dir(store.path), compactName)
	compacted, err := openFile(path, engine.Buffered)
	if err != nil {
		return engine.No, err
	}
	err = errors.Join(
		bolt.Compact(compacted, store.db, compactBatch),
		compacted.Sync(), compacted.Close(), store.db.Close(),
	)
	if err != nil {
		return engine.No, err
	}
	if err := os.Rename(path, store.path); err != nil {
		return engine.No, err
	}
	return engine.Yes, store.open()
}

func (store *store) Figures() map[string]float64 {
	return nil
}

func (store *store) Close() error {
	return store.db.Close()
}

// view is a read transaction, and the cursor in it once something was scanned.
type view struct {
	transaction *bolt.Tx
	bucket      *bolt.Bucket
	cursor      *bolt.Cursor
}

func (view *view) Get(key, out []byte) ([]byte, bool, error) {
	value := view.bucket.Get(key)
	return append(out, value...), value != nil, nil
}

// seek puts the cursor at the first entry of walk: the cursor, the entry, and how many to visit at
// most.
func (view *view) seek(walk engine.Walk) (cursor *bolt.Cursor, key, value []byte, limit uint64) {
	if view.cursor == nil {
		view.cursor = view.bucket.Cursor()
	}
	cursor, limit = view.cursor, ^uint64(0)
	switch walk.Direction {
	case engine.From:
		limit = walk.Limit
		key, value = cursor.Seek(walk.Key)
	case engine.Reverse:
		key, value = cursor.Last()
	default:
		key, value = cursor.First()
	}
	return cursor, key, value, limit
}

func (view *view) Scan(walk engine.Walk, visit func(key, value []byte)) (uint64, error) {
	cursor, key, value, limit := view.seek(walk)
	count := uint64(0)
	for ; key != nil && count < limit; count++ {
		visit(key, value)
		if walk.Direction == engine.Reverse {
			key, value = cursor.Prev()
		} else {
			key, value = cursor.Next()
		}
	}
	return count, nil
}

func (view *view) Sum(walk engine.Walk) (data.Seen, error) {
	var seen data.Seen
	cursor, key, value, limit := view.seek(walk)
	for key != nil && seen.Count < limit {
		seen.Add(key, value)
		if walk.Direction == engine.Reverse {
			key, value = cursor.Prev()
		} else {
			key, value = cursor.Next()
		}
	}
	return seen, nil
}

func (view *view) Close() error {
	return view.transaction.Rollback()
}
