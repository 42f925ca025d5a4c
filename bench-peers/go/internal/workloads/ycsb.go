package workloads

import (
	"fmt"
	"slices"
	"time"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	ycsbOperations  = 1_000_000
	ycsbThreads     = 2
	ycsbScanLenMax  = 100
	ycsbInsertsFarE = 1 << 32 // Inserts of E begin that far above those of D.
)

type readKind int

const (
	readPopular readKind = iota
	readLatest
	readScan
)

type writeKind int

const (
	writeUpdate writeKind = iota
	writeInsert
	writeReadModify
)

type ycsbMix struct {
	name        string
	readPercent uint64
	read        readKind
	write       writeKind
	// Version of the values that updates write.
	version uint64
	stream  uint64
	// Added to the number of keys: where inserts begin.
	insertsOffset uint64
}

var ycsbMixes = []ycsbMix{
	{"A", 50, readPopular, writeUpdate, 1, streamYCSB, 0},
	{"B", 95, readPopular, writeUpdate, 2, streamYCSB + 1, 0},
	{"C", 100, readPopular, writeUpdate, 0, streamYCSB + 2, 0},
	{"D", 95, readLatest, writeInsert, 0, streamYCSB + 3, 0},
	{"F", 50, readPopular, writeReadModify, 3, streamYCSB + 4, 0},
	{"E", 95, readScan, writeInsert, 0, streamYCSB + 5, ycsbInsertsFarE},
}

// W6: YCSB A, B, C, D, F, E (in this order: D and E insert), a million operations each on two
// threads on the W3 store; writes unsynced. Every operation is timed by itself, so that making keys
// and checking values stay off the clock.
//
//	A  50 % zipf reads                             50 % update
//	B  95 % zipf reads                             5 % update
//	C  all zipf reads
//	D  95 % reads of the latest                    5 % insert
//	F  50 % zipf reads                             50 % read, modify, write (one operation)
//	E  95 % scans of 1 to 100 from a zipf key      5 % insert
//
// Invariants
//   - Y1  Each thread inserts keys of its own and takes "the latest" from the load and its own
//     inserts: what is read never depends on how far the other thread is.
func runYCSB(context *Context) error {
	return runMixes(context, ycsbMixes)
}

// C alone: it changes nothing.
func runYCSBReads(context *Context) error {
	return runMixes(context, slices.DeleteFunc(slices.Clone(ycsbMixes), func(mix ycsbMix) bool {
		return mix.readPercent < 100
	}))
}

func runMixes(context *Context, mixes []ycsbMix) error {
	keys, count := context.Job.Keys, max(context.count(ycsbOperations), ycsbThreads)
	zipf := data.NewZipf(keys)
	store, err := context.open(context.store(storeLarge))
	if err != nil {
		return err
	}
	// As in W4: caches are then as full as they get.
	warmUp := gets{
		stream: streamWarmUp, count: count, threads: 1, keys: keys,
		valueLen: valueLen, choice: uniform, zipf: zipf, source: newest,
	}
	if _, err := warmUp.run(store); err != nil {
		return err
	}
	for _, mix := range mixes {
		clients, wall, err := onThreads(ycsbThreads, func(thread uint64) (*ycsbClient, error) {
			client := &ycsbClient{
				store: store, mix: mix, zipf: zipf, keys: keys, thread: thread,
				reads: measure.NewLatency(), writes: measure.NewLatency(),
			}
			for j := range count / ycsbThreads {
				if err := client.operate(data.Operation(mix.stream, thread, j)); err != nil {
					return nil, err
				}
			}
			return client, nil
		})
		if err != nil {
			return err
		}
		reads, writes := measure.NewLatency(), measure.NewLatency()
		var busy time.Duration
		for _, client := range clients {
			reads.Merge(client.reads)
			writes.Merge(client.writes)
			busy = max(busy, client.busy)
		}
		done := reads.Count() + writes.Count()
		context.report(report.New("W6", mix.name, measure.Rate(done, busy), "ops/s").
			With("reads", reads.Count()).
			With("writes", writes.Count()).
			With("wall_s", wall.Seconds()))
		context.report(reads.Rows("W6", mix.name+" read")...)
		context.report(writes.Rows("W6", mix.name+" write")...)
	}
	if err := store.Close(); err != nil {
		return err
	}
	context.report(measure.PeakMemoryRows("W6", "peak memory")...)
	return nil
}

// ycsbClient is one thread of a mix.
type ycsbClient struct {
	store    engine.Store
	mix      ycsbMix
	zipf     *data.Zipf
	keys     uint64
	thread   uint64
	inserted uint64

	busy   time.Duration
	reads  *measure.Latency
	writes *measure.Latency

	key     []byte
	value   []byte
	out     []byte
	checker data.ValueChecker
}

func (client *ycsbClient) operate(x uint64) error {
	// The key is chosen by x; what to do with it by a number that has nothing to do with it.
	other := data.Mix(^x)
	if data.Pick(other, 100) < client.mix.readPercent {
		switch client.mix.read {
		case readPopular:
			return client.read(client.zipf.Index(x))
		case readLatest:
			return client.read(client.latest(client.zipf.Rank(x)))
		default:
			return client.scan(client.zipf.Index(x), 1+data.Pick(data.Mix(other), ycsbScanLenMax))
		}
	}
	switch client.mix.write {
	case writeUpdate:
		return client.write(client.zipf.Index(x))
	case writeInsert:
		client.inserted++
		return client.write(client.own(client.inserted - 1))
	default:
		return client.readModifyWrite(client.zipf.Index(x))
	}
}

// own is the index of this thread's insert of a number (Y1).
func (client *ycsbClient) own(number uint64) uint64 {
	return client.keys + client.mix.insertsOffset + number*ycsbThreads + client.thread
}

// latest is the index of the entry that is `age` entries older than the latest (Y1).
func (client *ycsbClient) latest(age uint64) uint64 {
	if age < client.inserted {
		return client.own(client.inserted - 1 - age)
	}
	return client.keys - 1 - min(age-client.inserted, client.keys-1)
}

func (client *ycsbClient) setKey(index uint64) {
	client.key = data.Random16.Append(index, client.key[:0])
}

func (client *ycsbClient) setValue(index uint64) {
	client.value = data.AppendValue(index, client.mix.version, valueLen, client.value[:0])
}

func (client *ycsbClient) read(index uint64) error {
	client.setKey(index)
	start := measure.Now()
	out, found, err := client.store.Get(client.key, client.out[:0])
	took := measure.Now() - start
	client.busy += took
	client.reads.Record(took)
	return client.check(index, out, found, err)
}

func (client *ycsbClient) write(index uint64) error {
	client.setKey(index)
	client.setValue(index)
	start := measure.Now()
	err := client.store.Put(client.key, client.value, engine.Buffered)
	took := measure.Now() - start
	client.busy += took
	client.writes.Record(took)
	return err
}

func (client *ycsbClient) readModifyWrite(index uint64) error {
	client.setKey(index)
	client.setValue(index)
	start := measure.Now()
	out, found, err := client.store.Get(client.key, client.out[:0])
	if err == nil {
		err = client.store.Put(client.key, client.value, engine.Buffered)
	}
	took := measure.Now() - start
	client.busy += took
	client.writes.Record(took)
	return client.check(index, out, found, err)
}

func (client *ycsbClient) scan(index, limit uint64) error {
	client.setKey(index)
	walk := engine.Walk{Direction: engine.From, Key: client.key, Limit: limit}
	start := measure.Now()
	seen, err := sum(client.store, walk)
	took := measure.Now() - start
	client.busy += took
	client.reads.Record(took)
	if err == nil && seen.Count == 0 {
		err = fmt.Errorf("W6 %s: nothing from key %d on", client.mix.name, index)
	}
	return err
}

func (client *ycsbClient) check(index uint64, out []byte, found bool, err error) error {
	if err != nil {
		return err
	}
	client.out = out
	_, whole := client.checker.VersionOf(index, out, versions)
	if found && whole && len(out) == valueLen {
		return nil
	}
	return fmt.Errorf("W6 %s: key %d found: %v, or a wrong value", client.mix.name, index, found)
}
