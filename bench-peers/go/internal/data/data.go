// Package data makes deterministic keys, values and choices: the same bytes in every run, engine
// and language. It is a port of the generator of crates/bench, and must not know engines or clocks.
//
// All arithmetic is unsigned, 64 bits, wrapping.
//
//	mix(z)          the finalizer of SplitMix64: two xor-shift-multiply rounds, a last xor-shift
//	r(s, i)         mix(s + (i + 1) * G)
//	Pick(x, n)      high 64 bits of the 128-bit product x * n: uniform in 0..n
//	key16(i)        BE64(r(SK1,i)) BE64(r(SK2,i)): random order
//	skey16(i)       BE64(i) BE64(r(SK2,i)): ascending
//	key21(i)        key16(i), then the first 5 bytes of BE64(r(SK3,i))
//	val(i,ver,len)  LE64(r(s,0)) LE64(r(s,1)) .. cut to len, s = r(SV,i) ^ mix(ver)
//
// Invariants
//   - D1  Mix is a bijection, so an index can be read back from its key (KeyShape.IndexOf) and any
//     entry that a scan returns can be checked without a table of what was stored.
package data

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"os"
)

const (
	g    = 0x9E3779B97F4A7C15 // The golden ratio in 64 bits.
	mix1 = 0xBF58476D1CE4E5B9
	mix2 = 0x94D049BB133111EB

	seedKey1      = 0x1111111111111111
	seedKey2      = 0x2222222222222222
	seedKey3      = 0x3333333333333333
	seedValue     = 0x4444444444444444
	seedOperation = 0x5555555555555555
)

// ValuesRepeat says whether half of each value repeats its first word, for engines to compress with
// LZ4, or with what they have that is as fast.
var ValuesRepeat = os.Getenv("LITHE_BENCH_VALUES_REPEAT") != ""

const (
	// MissFirst + j are indexes of keys that are in no store.
	MissFirst = 1 << 40
	// VersionLoad is the version that loads write.
	VersionLoad = 0
)

var (
	gInverse    = inverseOfOdd(g)
	mix1Inverse = inverseOfOdd(mix1)
	mix2Inverse = inverseOfOdd(mix2)
)

// Mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
func Mix(z uint64) uint64 {
	z ^= z >> 30
	z *= mix1
	z ^= z >> 27
	z *= mix2
	return z ^ z>>31
}

// unmix(Mix(z)) == z.
func unmix(z uint64) uint64 {
	z = unshift(z, 31) * mix2Inverse
	z = unshift(z, 27) * mix1Inverse
	return unshift(z, 30)
}

// unshift undoes z ^ z>>by; two steps suffice because 3 * by > 64.
func unshift(z uint64, by uint) uint64 {
	return z ^ z>>by ^ z>>(2*by)
}

// inverseOfOdd is Newton's iteration: each step doubles the number of correct low bits, 3 to 96.
func inverseOfOdd(odd uint64) uint64 {
	inverse := odd
	for range 5 {
		inverse *= 2 - odd*inverse
	}
	return inverse
}

// r is number i of the sequence with seed s.
func r(s, i uint64) uint64 {
	return Mix(s + (i+1)*g)
}

// Pick is a uniform choice from 0..n.
func Pick(x, n uint64) uint64 {
	high, _ := bits.Mul64(x, n)
	return high
}

// Operation is the random number behind an operation of a thread of a stream.
func Operation(stream, thread, operation uint64) uint64 {
	return r(seedOperation^stream<<32^thread, operation)
}

// KeyShape says how an index becomes a key.
type KeyShape int

const (
	// Random16 is key16: 16 bytes, random order.
	Random16 KeyShape = iota
	// Ascending16 is skey16: 16 bytes, ascending with the index.
	Ascending16
	// Random21 is key21: 21 bytes, random order.
	Random21
)

// KeyLen is the bytes of a key.
func (shape KeyShape) KeyLen() int {
	if shape == Random21 {
		return 21
	}
	return 16
}

// Append appends key index.
func (shape KeyShape) Append(index uint64, out []byte) []byte {
	first := index
	if shape != Ascending16 {
		first = r(seedKey1, index)
	}
	out = binary.BigEndian.AppendUint64(out, first)
	out = binary.BigEndian.AppendUint64(out, r(seedKey2, index))
	if shape == Random21 {
		third := binary.BigEndian.AppendUint64(nil, r(seedKey3, index))
		out = append(out, third[:5]...)
	}
	return out
}

// Key is key index, newly allocated.
func (shape KeyShape) Key(index uint64) []byte {
	return shape.Append(index, make([]byte, 0, shape.KeyLen()))
}

// IndexOf is the index whose key this is; false if no index has it (D1).
func (shape KeyShape) IndexOf(key []byte) (uint64, bool) {
	if len(key) != shape.KeyLen() {
		return 0, false
	}
	index := binary.BigEndian.Uint64(key)
	if shape != Ascending16 {
		index = (unmix(index)-seedKey1)*gInverse - 1
	}
	var buffer [24]byte
	return index, bytes.Equal(shape.Append(index, buffer[:0]), key)
}

// AppendValue appends length bytes of value: those of entry index in a version.
func AppendValue(index, version uint64, length int, out []byte) []byte {
	seed := r(seedValue, index) ^ Mix(version)
	whole := length / 8
	for at := range whole {
		out = binary.LittleEndian.AppendUint64(out, valueWord(seed, at, length))
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], valueWord(seed, whole, length))
	return append(out, last[:length%8]...)
}

// valueWord is a word of a value of that length.
func valueWord(seed uint64, at, length int) uint64 {
	if ValuesRepeat && at >= length/8/2 {
		at = 0
	}
	return r(seed, uint64(at))
}

// ValueChecker says which version of an entry a value is. Not to be shared by threads.
type ValueChecker struct {
	expected []byte
}

// VersionOf is the version among versions whose value this is; false if it is none.
func (checker *ValueChecker) VersionOf(
	index uint64, value []byte, versions []uint64,
) (uint64, bool) {
	for _, version := range versions {
		// The first word is enough to tell versions apart.
		var head [8]byte
		binary.LittleEndian.PutUint64(head[:], r(r(seedValue, index)^Mix(version), 0))
		common := min(len(value), len(head))
		if !bytes.Equal(head[:common], value[:common]) {
			continue
		}
		checker.expected = AppendValue(index, version, len(value), checker.expected[:0])
		if bytes.Equal(checker.expected, value) {
			return version, true
		}
	}
	return 0, false
}

// EntryChecksum is what an entry adds to the checksum of a scan.
func EntryChecksum(key, value []byte) uint64 {
	var first, last byte
	if len(key) > 0 {
		first = key[0]
	}
	if len(value) > 0 {
		last = value[len(value)-1]
	}
	return uint64(first ^ last)
}

// Seen is what a scan saw.
type Seen struct {
	// Count of entries.
	Count uint64
	// Checksum is the sum of EntryChecksum.
	Checksum uint64
}

// Add adds an entry.
func (seen *Seen) Add(key, value []byte) {
	seen.Count++
	seen.Checksum += EntryChecksum(key, value)
}

// SeenOfLoad is what a scan of entries 0..count in the load version must see.
func SeenOfLoad(shape KeyShape, count uint64, valueLen int) Seen {
	seen := Seen{Count: count}
	key := make([]byte, 0, shape.KeyLen())
	for index := range count {
		key = shape.Append(index, key[:0])
		seen.Checksum += uint64(key[0] ^ lastValueByte(index, VersionLoad, valueLen))
	}
	return seen
}

func lastValueByte(index, version uint64, length int) byte {
	at := max(length-1, 0)
	word := valueWord(r(seedValue, index)^Mix(version), at/8, length)
	return byte(word >> (8 * (at % 8))) // Little-endian.
}
