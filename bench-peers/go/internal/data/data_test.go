package data

import (
	"encoding/hex"
	"math"
	"testing"
)

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func val(index, version uint64, length int) []byte {
	return AppendValue(index, version, length, nil)
}

func TestKeysAndValuesAreThePublishedVectors(t *testing.T) {
	text := hex.EncodeToString
	equal(t, text(Random16.Key(0)), "94af049176f813d0743bec34dd2f1e4f")
	equal(t, text(Random21.Key(1)), "d0a1fab9c695d06dc399aa0a5ef635779a1e85cbf7")
	equal(t, text(Ascending16.Key(1)), "0000000000000001c399aa0a5ef63577")
	equal(t, text(val(0, 0, 21)), "ee3a0269eb2263e74447db3ba5416f460fdf7dd340")
	equal(t, text(val(1, 7, 21)), "312e0707938603f84724ba0ec38ed2994a1dd5cf83")
}

func TestChecksumsOfTheStoresAreThePublishedOnes(t *testing.T) {
	equal(t, SeenOfLoad(Random21, 100_000, 21).Checksum, 12_769_657)
	equal(t, SeenOfLoad(Random16, 5_000_000, 100).Checksum, 637_528_010)
}

func TestChecksumOfEntriesIsTheOneComputedFromIndexes(t *testing.T) {
	for shape, length := range map[KeyShape]int{Random16: 100, Ascending16: 16, Random21: 21} {
		var seen Seen
		for index := range uint64(1000) {
			seen.Add(shape.Key(index), val(index, VersionLoad, length))
		}
		equal(t, seen, SeenOfLoad(shape, 1000, length))
	}
}

func TestAnIndexIsReadBackFromItsKey(t *testing.T) {
	for _, shape := range []KeyShape{Random16, Ascending16, Random21} {
		for _, index := range []uint64{0, 1, 2, 999, MissFirst, math.MaxUint64} {
			found, ok := shape.IndexOf(shape.Key(index))
			equal(t, ok, true)
			equal(t, found, index)
		}
		damaged := shape.Key(5)
		damaged[12] ^= 1
		_, ok := shape.IndexOf(damaged)
		equal(t, ok, false)
		_, ok = shape.IndexOf([]byte("short"))
		equal(t, ok, false)
	}
}

func TestAValueNamesItsVersionAndADamagedOneHasNone(t *testing.T) {
	var checker ValueChecker
	for _, length := range []int{3, 8, 21, 100} {
		value := val(9, 4, length)
		version, ok := checker.VersionOf(9, value, []uint64{0, 2, 4})
		equal(t, ok, true)
		equal(t, version, 4)
		_, ok = checker.VersionOf(9, value, []uint64{0, 2})
		equal(t, ok, false)
		_, ok = checker.VersionOf(8, value, []uint64{0, 2, 4})
		equal(t, ok, false)
		value[length-1] ^= 1
		_, ok = checker.VersionOf(9, value, []uint64{0, 2, 4})
		equal(t, ok, false)
	}
}

func TestAPickStaysBelowItsLimitAndReachesEveryChoice(t *testing.T) {
	var seen [10]int
	for j := range uint64(10_000) {
		seen[Pick(Operation(1, 0, j), 10)]++
	}
	for _, count := range seen {
		if count < 800 || count > 1200 {
			t.Fatalf("not uniform: %v", seen)
		}
	}
	equal(t, Pick(math.MaxUint64, 7), 6)
}

// The hashes are those of the generator in crates/bench.
func TestZipfChoosesWhatTheRustGeneratorChooses(t *testing.T) {
	for n, want := range map[uint64]uint64{
		3000:    0x12b23009778e0230,
		200000:  0xfd7b2c3ce73e8a70,
		5000000: 0x3e5e58a63dce29c4,
	} {
		zipf, hash := NewZipf(n), uint64(0)
		for j := range uint64(100_000) {
			hash = Mix(hash ^ zipf.Index(Operation(0x41, 0, j)))
		}
		equal(t, hash, want)
	}
}

func TestEveryZipfChoiceIsInsideEvenForTheSmallestSets(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 10} {
		zipf := NewZipf(n)
		for j := range uint64(1000) {
			for _, x := range []uint64{Operation(1, 2, j), 0, math.MaxUint64} {
				if zipf.Rank(x) >= n || zipf.Index(x) >= n {
					t.Fatalf("n %d, x %d: outside", n, x)
				}
			}
		}
	}
}

func TestEntriesOfABatchComeBackInOrderWithTheirBytes(t *testing.T) {
	var records Records
	records.Refill(Random21, 1, 3, func(number uint64) uint64 { return 6 - 2*number }, 21, 3)
	equal(t, records.Len(), 2)
	equal(t, records.Size(), 84)
	for number, want := range []uint64{4, 2} {
		key, value := records.At(number)
		index, _ := Random21.IndexOf(key)
		equal(t, index, want)
		equal(t, string(value), string(val(want, 3, 21)))
	}
	records.Clear()
	records.Push(nil, []byte("value"))
	records.Push([]byte("key"), nil)
	key, value := records.At(0)
	equal(t, string(key)+"|"+string(value), "|value")
	key, value = records.At(1)
	equal(t, string(key)+"|"+string(value), "key|")
}
