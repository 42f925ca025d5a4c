package workloads

import (
	"bytes"
	"errors"
	"fmt"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	seekCount    = 100_000
	seeksChecked = 1000
	seekEntries  = 50
)

// W5: 100,000 x (seek to a key that is there, and the next 50), key and value touched. Once with a
// fresh view for each seek, as an application would, and once on one view.
//
// A pass of as many other seeks, not counted, goes before: caches are then as full as they get. Of
// some of them every entry is checked: that keys ascend from the one sought, and that each belongs
// to the store and has its value.
func runSeeks(context *Context) error {
	keys, seeks := context.Job.Keys, context.count(seekCount)
	store, err := context.open(context.store(storeLarge))
	if err != nil {
		return err
	}
	warmUp, targets := seekTargets(streamWarmUpSeeks, keys, seeks), seekTargets(streamSeeks, keys, seeks)
	if err := checkSeeks(store, keys, warmUp[:min(seeks, seeksChecked)]); err != nil {
		return err
	}
	for number := range warmUp {
		if _, err := sum(store, seekWalk(&warmUp[number])); err != nil {
			return err
		}
	}

	var fresh data.Seen
	took, err := measure.Timed(func() error {
		for number := range targets {
			seen, err := sum(store, seekWalk(&targets[number]))
			if err != nil {
				return err
			}
			fresh.Count += seen.Count
			fresh.Checksum += seen.Checksum
		}
		return nil
	})
	if err != nil {
		return err
	}
	each := measure.MicrosecondsEach(seeks, took)
	context.report(report.New("W5", "seek + next 50", each, "us").
		With("entries", fresh.Count).With("checksum", fresh.Checksum))

	view, err := store.View()
	if err != nil {
		return err
	}
	var again data.Seen
	took, err = measure.Timed(func() error {
		for number := range targets {
			seen, err := view.Sum(seekWalk(&targets[number]))
			if err != nil {
				return err
			}
			again.Count += seen.Count
			again.Checksum += seen.Checksum
		}
		return nil
	})
	if err := errors.Join(err, view.Close()); err != nil {
		return err
	}
	if again != fresh {
		return errors.New("W5: one view and fresh views see different entries")
	}
	each = measure.MicrosecondsEach(seeks, took)
	context.report(report.New("W5", "seek + next 50, one view", each, "us"))
	return store.Close()
}

// An array: one allocation for all of them.
type seekTarget [16]byte

func seekTargets(stream, keys, seeks uint64) []seekTarget {
	targets := make([]seekTarget, seeks)
	for j := range targets {
		index := data.Pick(data.Operation(stream, 0, uint64(j)), keys)
		data.Random16.Append(index, targets[j][:0])
	}
	return targets
}

func seekWalk(target *seekTarget) engine.Walk {
	return engine.Walk{Direction: engine.From, Key: target[:], Limit: seekEntries}
}

func checkSeeks(store engine.Store, keys uint64, targets []seekTarget) error {
	var lastKey, key []byte
	for index := range keys {
		key = data.Random16.Append(index, key[:0])
		if bytes.Compare(key, lastKey) > 0 {
			lastKey = append(lastKey[:0], key...)
		}
	}
	for number := range targets {
		if err := checkSeek(store, &targets[number], lastKey); err != nil {
			return err
		}
	}
	return nil
}

func checkSeek(store engine.Store, target *seekTarget, lastKey []byte) error {
	var checker data.ValueChecker
	var last []byte
	good, count := true, 0
	_, err := scan(store, seekWalk(target), func(key, value []byte) {
		inOrder := bytes.Compare(last, key) < 0
		if count == 0 {
			inOrder = bytes.Equal(key, target[:])
		}
		index, known := data.Random16.IndexOf(key)
		_, whole := checker.VersionOf(index, value, versions)
		good = good && inOrder && known && whole
		count++
		last = append(last[:0], key...)
	})
	if err != nil {
		return err
	}
	// Only seeks near the last key may see fewer than asked for.
	if !good || (count < seekEntries && !bytes.Equal(last, lastKey)) {
		return fmt.Errorf("W5: %d entries after %x, in order and whole: %v", count, *target, good)
	}
	return nil
}
