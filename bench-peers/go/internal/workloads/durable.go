package workloads

import (
	"fmt"
	"time"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	storeDurable = "durable"
	shapeDurable = data.Random16
	tableGets    = 1_000_000
)

// W7: single puts of key16 / 100 B, each synced, on one and on eight threads.
func durablePuts(context *Context) error {
	for _, one := range []struct {
		threads, puts uint64
		name          string
	}{{1, 2000, "durable puts, 1 thread"}, {8, 2500, "durable puts, 8 threads"}} {
		puts := context.count(one.puts)
		store, err := context.openFresh(storeDurable, engine.Durable)
		if err != nil {
			return err
		}
		latencies, wall, err := onThreads(one.threads, func(thread uint64) (*measure.Latency, error) {
			return putDurably(store, thread*puts, (thread+1)*puts)
		})
		if err != nil {
			return err
		}
		if _, err := checkLoad(store, shapeDurable, one.threads*puts, valueLen); err != nil {
			return err
		}
		if err := store.Close(); err != nil {
			return err
		}
		latency := measure.NewLatency()
		for _, thread := range latencies {
			latency.Merge(thread)
		}
		rate := measure.Rate(one.threads*puts, wall)
		context.report(report.New("W7", one.name, rate, "ops/s"))
		context.report(latency.Rows("W7", one.name)...)
	}
	return context.removeStore(storeDurable)
}

func putDurably(store engine.Store, first, end uint64) (*measure.Latency, error) {
	latency := measure.NewLatency()
	var key, value []byte
	for index := first; index < end; index++ {
		key = shapeDurable.Append(index, key[:0])
		value = data.AppendValue(index, data.VersionLoad, valueLen, value[:0])
		start := measure.Now()
		err := store.Put(key, value, engine.Durable)
		latency.Record(measure.Now() - start)
		if err != nil {
			return nil, err
		}
	}
	return latency, nil
}

// W8: the tables of Roots: transactions of 1 to 10,000 entries, each synced, a fresh store for each
// size; then uniform gets on stores of 1k, 100k and 1M entries.
func durableTables(context *Context) error {
	for _, one := range []struct{ transactions, entries uint64 }{
		{10_000, 1}, {1000, 100}, {100, 1000}, {10, 10_000},
	} {
		if err := transactionsOf(context, context.count(one.transactions), one.entries); err != nil {
			return err
		}
	}
	for _, one := range []struct {
		name string
		keys uint64
	}{{"1k", 1000}, {"100k", 100_000}, {"1M", 1_000_000}} {
		if err := getsOfTable(context, one.name, context.count(one.keys)); err != nil {
			return err
		}
	}
	return context.removeStore(storeDurable)
}

func transactionsOf(context *Context, transactions, entries uint64) error {
	store, err := context.openFresh(storeDurable, engine.Durable)
	if err != nil {
		return err
	}
	latency, busy := measure.NewLatency(), time.Duration(0)
	var records data.Records
	put := func() error { return store.PutBatch(&records, engine.Durable) }
	for transaction := range transactions {
		first := transaction * entries
		records.Refill(shapeDurable, first, first+entries, data.Same, valueLen, data.VersionLoad)
		took, err := measure.Timed(put)
		if err != nil {
			return err
		}
		busy += took
		latency.Record(took)
	}
	seen, err := checkLoad(store, shapeDurable, transactions*entries, valueLen)
	if err != nil {
		return err
	}
	each := measure.MicrosecondsEach(transactions, busy)
	context.report(report.New("W8", fmt.Sprintf("transactions of %d", entries), each, "us").
		With("transactions", transactions).
		With("p50_us", latency.QuantileUS(0.5)).
		With("p99_us", latency.QuantileUS(0.99)).
		With("checksum", seen.Checksum))
	return store.Close()
}

func getsOfTable(context *Context, name string, keys uint64) error {
	store, err := context.openFresh(storeDurable, engine.Buffered)
	if err != nil {
		return err
	}
	if _, err := loadOf(shapeDurable).runInOrder(store, keys); err != nil {
		return err
	}
	read, err := gets{
		stream: streamTableGets, count: context.count(tableGets), threads: 1, keys: keys,
		valueLen: valueLen, choice: uniform, source: newest,
	}.run(store)
	if err != nil {
		return err
	}
	each := measure.NanosecondsEach(read.count, read.busy)
	context.report(report.New("W8", "gets of "+name, each, "ns").With("checksum", read.checksum))
	return store.Close()
}
