// Package engine is the engine under test: the few operations that the workloads are made of, the
// same as the traits of crates/bench. It must not know any engine, nor the workloads.
//
// Invariants
//   - E1  Buffered must survive the end of the process where the engine can do that; Durable
//     survives the machine: it returns after fsync (or the like) has.
//   - E2  A view shows one moment: later writes do not change what it returns.
package engine

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"lithedb/bench-peers/internal/data"
)

// Commit says when a write is acknowledged.
type Commit int

const (
	// Buffered is without sync.
	Buffered Commit = iota
	// Durable is after sync.
	Durable
)

// Offered says whether an engine has an operation of that kind: if not, nothing was done.
type Offered bool

const (
	// Yes: it has, and it was done.
	Yes Offered = true
	// No: it has none.
	No Offered = false
)

// Memory that an engine may use for cache and write buffers. The zero value is what the engine
// takes when it is not told.
type Memory struct {
	bytes uint64
	told  bool
}

// MemoryRule is the rule of the benchmarks: 256 MiB for every engine that can be told.
var MemoryRule = Memory{bytes: 256 << 20, told: true}

// ParseMemory reads `default`, or bytes with an optional unit: 268435456, 256MiB, 1GiB.
func ParseMemory(text string) (Memory, error) {
	if text == "default" {
		return Memory{}, nil
	}
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	shifts := map[string]uint{"": 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30}
	shift, known := shifts[strings.TrimSpace(text[digits:])]
	if !known {
		return Memory{}, fmt.Errorf("unknown unit %q: use B, KiB, MiB or GiB", text[digits:])
	}
	number, err := strconv.ParseUint(text[:digits], 10, 64)
	if err != nil {
		return Memory{}, fmt.Errorf("%q is not a size", text)
	}
	high, low := bits.Mul64(number, 1<<shift)
	if high > 0 {
		return Memory{}, fmt.Errorf("%s: too large", text)
	}
	return Memory{bytes: low, told: true}, nil
}

// Bytes is the budget; false if the engine is not told.
func (memory Memory) Bytes() (uint64, bool) {
	return memory.bytes, memory.told
}

// String is what ParseMemory reads.
func (memory Memory) String() string {
	if !memory.told {
		return "default"
	}
	return strconv.FormatUint(memory.bytes, 10)
}

// Direction of a walk.
type Direction int

const (
	// Forward is from the first key on.
	Forward Direction = iota
	// Reverse is from the last key back.
	Reverse
	// From is the first Limit entries whose key is at least Key.
	From
)

// Walk says which entries a scan visits.
type Walk struct {
	Direction Direction
	// Where to begin, and how many to visit at most, for From.
	Key   []byte
	Limit uint64
}

// View is one moment of a store (E2). Used by the goroutine that took it.
type View interface {
	// Get appends the value of key to out; false, and nothing appended, if there is none.
	Get(key, out []byte) ([]byte, bool, error)
	// Scan shows key and value of each entry of walk to visit; how many there were.
	Scan(walk Walk, visit func(key, value []byte)) (uint64, error)
	// Sum is Scan with Seen.Add for a visitor, compiled into the loop: a call of a function value
	// per entry would be a good part of the time of the fastest scans.
	Sum(walk Walk) (data.Seen, error)
	// Close frees the view. Its store is closed after it.
	Close() error
}

// Store is one ordered map from bytes to bytes. Shared by goroutines.
type Store interface {
	// Put writes one entry.
	Put(key, value []byte, commit Commit) error
	// PutBatch writes all entries or, if it fails, none.
	PutBatch(records *data.Records, commit Commit) error
	// Delete removes one entry.
	Delete(key []byte, commit Commit) error
	// DeleteRange removes all keys from `from` (included) to `to` (excluded) at once, and says in
	// words how; "" if it has nothing better than one by one, and did nothing.
	DeleteRange(from, to []byte, commit Commit) (string, error)
	// Get appends the newest value of key to out; false, and nothing appended, if there is none.
	Get(key, out []byte) ([]byte, bool, error)
	// View is this moment.
	View() (View, error)
	// Sync makes all acknowledged writes durable.
	Sync() error
	// Flush moves what the engine holds back in memory to its final place, and waits for it.
	Flush() (Offered, error)
	// Compact gives dead space back: full compaction, vacuum or what the engine calls it.
	Compact() (Offered, error)
	// Figures is what the engine counts itself and is worth a look.
	Figures() map[string]float64
	// Close closes the store in order.
	Close() error
}

// Engine is a kind of stores.
type Engine struct {
	// Name is how reports call it.
	Name string
	// BufferedSurvivesKill says whether the loss of a write that was acknowledged as Buffered after
	// the process was killed is an error of the engine (E1), and not just its way.
	BufferedSurvivesKill bool
	// About is what a report says about it.
	About About
	// Open opens the store in a directory, or creates it. The strongest commit that will be asked
	// for is known: some engines can be told only here.
	Open func(dir string, memory Memory, strongest Commit) (Store, error)
	// OpenApart creates a store that keeps values of so many bytes and more apart from their keys;
	// nil if the engine cannot.
	OpenApart func(dir string, memory Memory, from int64) (Store, error)
}
