package workloads

import (
	"bytes"
	"errors"
	"fmt"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
)

// Checks of what a store returns. A benchmark of a wrong answer is worth nothing, so each of these
// is an error and ends the run.

// sum touches all of walk in a fresh view.
func sum(store engine.Store, walk engine.Walk) (data.Seen, error) {
	view, err := store.View()
	if err != nil {
		return data.Seen{}, err
	}
	seen, err := view.Sum(walk)
	return seen, errors.Join(err, view.Close())
}

// scan shows all of walk in a fresh view.
func scan(store engine.Store, walk engine.Walk, visit func(key, value []byte)) (uint64, error) {
	view, err := store.View()
	if err != nil {
		return 0, err
	}
	count, err := view.Scan(walk, visit)
	return count, errors.Join(err, view.Close())
}

func mustBe(seen, expected data.Seen, what string) error {
	if seen == expected {
		return nil
	}
	return fmt.Errorf("%s: scanned %d entries with checksum %d, expected %d with %d",
		what, seen.Count, seen.Checksum, expected.Count, expected.Checksum)
}

// checkLoad scans the whole store and compares with what a load of count entries leaves.
func checkLoad(
	store engine.Store, shape data.KeyShape, count uint64, valueLen int,
) (data.Seen, error) {
	seen, err := sum(store, engine.Walk{})
	if err != nil {
		return seen, err
	}
	return seen, mustBe(seen, data.SeenOfLoad(shape, count, valueLen), "after the load")
}

// checkEntries scans the whole store: keys ascend, each is a key of shape, each value is a version
// that versionsOf(index) allows, and all of 0..keys are there. Returns how many entries there are.
func checkEntries(
	store engine.Store, shape data.KeyShape, keys uint64, versionsOf func(uint64) []uint64,
) (uint64, error) {
	var checker data.ValueChecker
	var last []byte
	var problem error
	first, below := true, uint64(0)
	count, err := scan(store, engine.Walk{}, func(key, value []byte) {
		index, known := shape.IndexOf(key)
		if known {
			if index < keys {
				below++
			}
			_, known = checker.VersionOf(index, value, versionsOf(index))
		}
		ascends := first || bytes.Compare(last, key) < 0
		if problem == nil && (!ascends || !known) {
			problem = fmt.Errorf("entry %x (index %d): out of order or wrong", key, index)
		}
		first = false
		last = append(last[:0], key...)
	})
	switch {
	case err != nil:
		return 0, err
	case problem != nil:
		return 0, problem
	case below != keys:
		return 0, fmt.Errorf("%d of %d keys found", below, keys)
	}
	return count, nil
}
