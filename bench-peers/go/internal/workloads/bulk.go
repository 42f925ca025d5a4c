package workloads

import (
	"bytes"
	"errors"
	"fmt"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	storeBulk = "w14"
	bulkKeys  = 1_000_000
	shapeBulk = data.Ascending16
)

// W14: a load of a million sorted entries (batches of 1000, one sync), the count of the 10 % in the
// middle by a scan, and their removal: at once where the engine has that, else key by key.
func runBulk(context *Context) error {
	keys := max(context.count(bulkKeys), 10)
	middle := indexRange{keys * 45 / 100, keys * 55 / 100}
	store, err := context.openFresh(storeBulk, engine.Buffered)
	if err != nil {
		return err
	}
	writes := loadOf(shapeBulk)
	written, err := writes.runInOrder(store, keys)
	if err != nil {
		return err
	}
	seen, err := checkLoad(store, shapeBulk, keys, writes.valueLen)
	if err != nil {
		return err
	}
	context.report(report.New("W14", "sorted load", measure.Rate(keys, written.busy), "ops/s").
		With("checksum", seen.Checksum))

	if err := countMiddle(context, store, middle); err != nil {
		return err
	}
	var how string
	took, err := measure.Timed(func() (err error) {
		how, err = removeRange(store, middle)
		return err
	})
	if err != nil {
		return err
	}
	if left, err := countRange(store, middle); err != nil || left != 0 {
		return errors.Join(err, errors.New("W14: entries are left in the removed range"))
	}
	left, err := scan(store, engine.Walk{}, func(_, _ []byte) {})
	if err != nil {
		return err
	}
	if left != keys-middle.len() {
		return fmt.Errorf("W14: %d entries are left after the removal", left)
	}
	each := measure.NanosecondsEach(middle.len(), took)
	context.report(report.New("W14", "range delete", each, "ns/key").With("how", how))
	if err := store.Close(); err != nil {
		return err
	}
	return context.removeStore(storeBulk)
}

type indexRange struct{ start, end uint64 }

func (indexes indexRange) len() uint64 {
	return indexes.end - indexes.start
}

func countMiddle(context *Context, store engine.Store, middle indexRange) error {
	var count uint64
	took, err := measure.Timed(func() (err error) {
		count, err = countRange(store, middle)
		return err
	})
	if err != nil {
		return err
	}
	if count != middle.len() {
		return fmt.Errorf("W14: the count of the range is not %d", middle.len())
	}
	each := measure.NanosecondsEach(count, took)
	context.report(report.New("W14", "count of a range by scan", each, "ns/key"))
	return nil
}

// countRange counts entries from the first to the last key of the range by walking over them.
func countRange(store engine.Store, indexes indexRange) (uint64, error) {
	start, end := shapeBulk.Key(indexes.start), shapeBulk.Key(indexes.end)
	inside := uint64(0)
	walk := engine.Walk{Direction: engine.From, Key: start, Limit: indexes.len()}
	_, err := scan(store, walk, func(key, _ []byte) {
		if bytes.Compare(key, end) < 0 {
			inside++
		}
	})
	return inside, err
}

func removeRange(store engine.Store, indexes indexRange) (string, error) {
	start, end := shapeBulk.Key(indexes.start), shapeBulk.Key(indexes.end)
	how, err := store.DeleteRange(start, end, engine.Buffered)
	if err != nil {
		return how, err
	}
	if how == "" {
		how = "key by key"
		var key []byte
		for index := indexes.start; index < indexes.end; index++ {
			key = shapeBulk.Append(index, key[:0])
			if err := store.Delete(key, engine.Buffered); err != nil {
				return how, err
			}
		}
	}
	return how, store.Sync()
}
