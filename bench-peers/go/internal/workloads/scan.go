package workloads

import (
	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	scanPasses      = 3
	unflushedWrites = 10_000
)

// scanned is a store of W2.
type scanned struct {
	name     string
	shape    data.KeyShape
	keys     uint64
	valueLen int
	// What stands before the names of its figures.
	prefix string
}

func scanSmall(context *Context) error {
	keys := context.count(keysSmall)
	return scanStore(context, scanned{storeSmall, shapeSmall, keys, valueLenSmall, "small"})
}

func scanLarge(context *Context) error {
	keys := context.Job.Keys
	return scanStore(context, scanned{storeLarge, data.Random16, keys, valueLen, "large"})
}

// W2: full scans of the W1 and the W3 store, key and value touched: cold (a new process, page cache
// dropped), the second pass, warm passes, reverse, and with 10,000 unflushed writes.
//
// The unflushed writes repeat what the store holds, so that every pass has the same checksum.
func scanStore(context *Context, scanned scanned) error {
	expected := data.SeenOfLoad(scanned.shape, scanned.keys, scanned.valueLen)
	dir := context.store(scanned.name)
	cold := measure.DropPageCache(dir)
	var store engine.Store
	openTook, err := measure.Timed(func() (err error) {
		store, err = context.open(dir)
		return err
	})
	if err != nil {
		return err
	}

	var rows []report.Row
	add := func(metric string, passes int, walk engine.Walk) error {
		value, err := medianPass(store, passes, walk, expected)
		row := report.New("W2", scanned.prefix+" "+metric, value, "ns/key")
		rows = append(rows, row.With("checksum", expected.Checksum))
		return err
	}
	for _, one := range []struct {
		metric string
		passes int
		walk   engine.Walk
	}{
		{"cold", 1, engine.Walk{}},
		{"second pass", 1, engine.Walk{}},
		{"warm", scanPasses, engine.Walk{}},
		{"reverse", scanPasses, engine.Walk{Direction: engine.Reverse}},
	} {
		if err := add(one.metric, one.passes, one.walk); err != nil {
			return err
		}
	}
	rows[0].With("page_cache", string(cold)).With("open_ms", measure.Milliseconds(openTook))

	count := context.count(unflushedWrites)
	var records data.Records
	records.Refill(scanned.shape, 0, count, func(j uint64) uint64 {
		return data.Pick(data.Operation(streamUnflushed, 0, j), scanned.keys)
	}, scanned.valueLen, data.VersionLoad)
	if err := store.PutBatch(&records, engine.Buffered); err != nil {
		return err
	}
	if err := add("with unflushed writes", scanPasses, engine.Walk{}); err != nil {
		return err
	}
	rows[len(rows)-1].With("unflushed", count)
	context.report(rows...)
	return store.Close()
}

// medianPass is nanoseconds per entry of the median pass, each from taking the view on.
func medianPass(
	store engine.Store, passes int, walk engine.Walk, expected data.Seen,
) (float64, error) {
	var times []float64
	for range passes {
		var seen data.Seen
		took, err := measure.Timed(func() (err error) {
			seen, err = sum(store, walk)
			return err
		})
		if err != nil {
			return 0, err
		}
		if err := mustBe(seen, expected, "W2"); err != nil {
			return 0, err
		}
		times = append(times, measure.NanosecondsEach(seen.Count, took))
	}
	return report.Median(times), nil
}
