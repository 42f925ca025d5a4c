package workloads

import (
	"bytes"
	"errors"
	"strconv"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	storeSingle       = "w9"
	singlePuts        = 500_001
	singleReads       = 50_000
	singleValueLenMax = len("value-500000")
)

// W9: the benchmark of LoremDB. 500,001 single puts `key-<i>` = `value-<i>` without sync, then
// 50,000 hits (the oldest keys, ascending) and 50,000 misses `missing-<i>`. Keys are made before.
func runSingle(context *Context) error {
	puts, reads := context.count(singlePuts), context.count(singleReads)
	var records data.Records
	for i := range puts {
		records.Push(numbered("key-", i), numbered("value-", i))
	}
	store, err := context.openFresh(storeSingle, engine.Buffered)
	if err != nil {
		return err
	}
	took, err := measure.Timed(func() error { return putEach(store, &records) })
	if err != nil {
		return err
	}
	rate := measure.Rate(puts, took)
	context.report(report.New("W9", "single puts, no sync", rate, "ops/s"))

	var hits, missing [][]byte
	var expected []byte
	for i := range reads {
		missing = append(missing, numbered("missing-", i))
		if i < puts {
			key, value := records.At(int(i))
			hits = append(hits, key)
			expected = append(expected, value...)
		}
	}
	values := make([]byte, 0, int(reads)*singleValueLenMax)
	for _, one := range []struct {
		name  string
		keys  [][]byte
		found uint64
		wrong string
	}{
		{"hits", hits, reads, "W9: a hit was missed, or has a wrong value"},
		{"misses", missing, 0, "W9: found a key that was never written"},
	} {
		var found uint64
		took, err := measure.Timed(func() (err error) {
			found, values, err = readAll(store, one.keys, values)
			return err
		})
		if err != nil {
			return err
		}
		if found != one.found || !bytes.Equal(values, expected) {
			return errors.New(one.wrong)
		}
		context.report(report.New("W9", one.name, measure.NanosecondsEach(reads, took), "ns"))
	}
	if err := store.Close(); err != nil {
		return err
	}
	return context.removeStore(storeSingle)
}

func numbered(prefix string, i uint64) []byte {
	return strconv.AppendUint([]byte(prefix), i, 10)
}

// readAll counts the keys found, and appends their values.
func readAll(store engine.Store, keys [][]byte, values []byte) (uint64, []byte, error) {
	count := uint64(0)
	for _, key := range keys {
		longer, found, err := store.Get(key, values)
		if err != nil {
			return count, values, err
		}
		if found {
			values = longer
			count++
		}
	}
	return count, values, nil
}
