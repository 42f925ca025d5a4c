package workloads

import (
	"errors"
	"fmt"
	"time"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
)

// Reads between two looks at the clock, and the bytes of values that they may copy.
const (
	chunkLen  = 256
	chunkSize = 64 << 10
)

// choice says which keys are read.
type choice int

const (
	// Each equally often.
	uniform choice = iota
	// Popular ones more often.
	popular
	// Keys that are not there.
	misses
)

// source says where keys are read.
type source int

const (
	// The newest state, each read by itself.
	newest source = iota
	// One snapshot per thread.
	oneView
)

// gets is a number of point reads: what W4, W8 and W10 have in common. Keys are made before, and
// values are checked after, each chunk of reads: the clock runs only while the engine reads (and
// copies the value out).
type gets struct {
	// Names the sequence of random choices.
	stream uint64
	// Reads of all threads together.
	count   uint64
	threads uint64
	// The store holds keys 0..keys.
	keys     uint64
	valueLen int
	choice   choice
	zipf     *data.Zipf
	source   source
}

// read is what reading took.
type read struct {
	// Reads of all threads.
	count uint64
	// Time in the engine of the busiest thread.
	busy time.Duration
	// Sum of the last bytes of all values.
	checksum uint64
}

type getter func(key, out []byte) ([]byte, bool, error)

// run reads, and checks each value.
func (gets gets) run(store engine.Store) (read, error) {
	threads, _, err := onThreads(gets.threads, func(thread uint64) (read, error) {
		if gets.source == newest {
			return gets.runThread(thread, store.Get)
		}
		view, err := store.View()
		if err != nil {
			return read{}, err
		}
		read, err := gets.runThread(thread, view.Get)
		return read, errors.Join(err, view.Close())
	})
	var all read
	for _, one := range threads {
		all.count += one.count
		all.busy = max(all.busy, one.busy)
		all.checksum += one.checksum
	}
	return all, err
}

func (gets gets) runThread(thread uint64, get getter) (read, error) {
	count := (gets.count + gets.threads - 1) / gets.threads
	length := min(max(chunkSize/uint64(max(gets.valueLen, 1)), 1), chunkLen)
	var watch measure.Stopwatch
	var chunk chunk
	readChunk := func() error { return chunk.read(get) }
	for done := uint64(0); done < count; {
		end := min(count, done+length)
		chunk.prepare(done, end, func(j uint64) uint64 {
			return gets.index(data.Operation(gets.stream, thread, j))
		})
		if err := watch.Time(readChunk); err != nil {
			return read{}, err
		}
		if err := chunk.check(gets); err != nil {
			return read{}, err
		}
		done = end
	}
	return read{count, watch.Total, chunk.checksum}, nil
}

func (gets gets) index(x uint64) uint64 {
	switch gets.choice {
	case uniform:
		return data.Pick(x, gets.keys)
	case popular:
		return gets.zipf.Index(x)
	default:
		return data.MissFirst + data.Pick(x, gets.keys)
	}
}

// Instead of where a value ends, for a key that was not found.
const absent = -1

// chunk is a few reads: keys before, values after.
type chunk struct {
	indexes  []uint64
	keys     []byte
	values   []byte
	ends     []int
	checker  data.ValueChecker
	checksum uint64
}

func (chunk *chunk) prepare(first, end uint64, indexOf func(uint64) uint64) {
	chunk.indexes, chunk.keys = chunk.indexes[:0], chunk.keys[:0]
	chunk.values, chunk.ends = chunk.values[:0], chunk.ends[:0]
	for j := first; j < end; j++ {
		index := indexOf(j)
		chunk.indexes = append(chunk.indexes, index)
		chunk.keys = data.Random16.Append(index, chunk.keys)
	}
}

func (chunk *chunk) read(get getter) error {
	keyLen := data.Random16.KeyLen()
	for start := 0; start < len(chunk.keys); start += keyLen {
		key := chunk.keys[start : start+keyLen : start+keyLen]
		values, found, err := get(key, chunk.values)
		if err != nil {
			return err
		}
		if !found {
			chunk.ends = append(chunk.ends, absent)
			continue
		}
		chunk.values = values
		chunk.ends = append(chunk.ends, len(values))
	}
	return nil
}

func (chunk *chunk) check(gets gets) error {
	start := 0
	for place, index := range chunk.indexes {
		end := chunk.ends[place]
		if gets.choice == misses {
			if end != absent {
				return fmt.Errorf("key %d: found a miss", index)
			}
			continue
		}
		if end == absent {
			return fmt.Errorf("key %d: not found", index)
		}
		value := chunk.values[start:end]
		_, whole := chunk.checker.VersionOf(index, value, loaded)
		if len(value) != gets.valueLen || !whole {
			return fmt.Errorf("key %d: wrong value", index)
		}
		chunk.checksum += uint64(value[len(value)-1])
		start = end
	}
	return nil
}
