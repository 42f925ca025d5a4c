package workloads

import (
	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	storeSmallSingle = "w1-single"
	shapeSmall       = data.Random21
)

// W1: 100,000 x key21 / 21 B. In batches of 1000 with one sync at the end, inside the time; and as
// single puts without sync. All data is made before the clock starts.
func runSmall(context *Context) error {
	count := context.count(keysSmall)
	if err := smallBatches(context, count); err != nil {
		return err
	}
	return smallSingles(context, count)
}

func smallBatches(context *Context, count uint64) error {
	batches := make([]data.Records, (count+batchLen-1)/batchLen)
	for number := range batches {
		first := uint64(number) * batchLen
		end := min(count, first+batchLen)
		batches[number].Refill(shapeSmall, first, end, data.Same, valueLenSmall, data.VersionLoad)
	}
	store, err := context.openFresh(storeSmall, engine.Buffered)
	if err != nil {
		return err
	}
	var watch measure.Stopwatch
	err = watch.Time(func() error {
		for number := range batches {
			if err := store.PutBatch(&batches[number], engine.Buffered); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	beforeSync := watch.Total
	if err := watch.Time(store.Sync); err != nil {
		return err
	}
	seen, err := checkLoad(store, shapeSmall, count, valueLenSmall)
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	rate := measure.Rate(count, watch.Total)
	context.report(report.New("W1", "batches of 1000, one sync", rate, "ops/s").
		With("sync_ms", measure.Milliseconds(watch.Total-beforeSync)).
		With("checksum", seen.Checksum))
	return nil
}

func smallSingles(context *Context, count uint64) error {
	var records data.Records
	records.Refill(shapeSmall, 0, count, data.Same, valueLenSmall, data.VersionLoad)
	store, err := context.openFresh(storeSmallSingle, engine.Buffered)
	if err != nil {
		return err
	}
	took, err := measure.Timed(func() error { return putEach(store, &records) })
	if err != nil {
		return err
	}
	syncTook, err := measure.Timed(store.Sync)
	if err != nil {
		return err
	}
	seen, err := checkLoad(store, shapeSmall, count, valueLenSmall)
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	context.report(report.New("W1", "single puts, no sync", measure.Rate(count, took), "ops/s").
		With("later_sync_ms", measure.Milliseconds(syncTook)).
		With("checksum", seen.Checksum))
	return context.removeStore(storeSmallSingle)
}

// putEach writes the entries one by one, without sync.
func putEach(store engine.Store, records *data.Records) error {
	for number := range records.Len() {
		key, value := records.At(number)
		if err := store.Put(key, value, engine.Buffered); err != nil {
			return err
		}
	}
	return nil
}
