package workloads

import (
	"errors"
	"fmt"
	"os"
	"time"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const (
	storeKilled = "w12"
	cleanOpens  = 5
	shapeOpens  = data.Random16
)

// W12: opening. After a clean close (cold and warm), and after `kill -9` during a load without
// syncs: time to open, to the first get, what was acknowledged and what is found.
//
// The load that is killed runs in a process of its own (Victim): it writes to standard output,
// after each batch, how many entries are acknowledged.
func runOpens(context *Context) error {
	if err := opensAfterClose(context); err != nil {
		return err
	}
	return openAfterKill(context)
}

func opensAfterClose(context *Context) error {
	dir := context.store(storeLarge)
	cold := measure.DropPageCache(dir)
	var opens, gets []float64
	for range cleanOpens + 1 {
		opened, err := openAndGet(context, dir)
		if err != nil {
			return err
		}
		if err := opened.store.Close(); err != nil {
			return err
		}
		if !opened.found {
			return errors.New("W12: the first key is gone after a clean close")
		}
		opens = append(opens, measure.Milliseconds(opened.openTook))
		gets = append(gets, measure.MicrosecondsEach(1, opened.getTook))
	}
	context.report(
		report.New("W12", "clean open, cold", opens[0], "ms").
			With("page_cache", string(cold)).With("first_get_us", gets[0]),
		report.New("W12", "clean open, warm", report.Median(opens[1:]), "ms").
			With("first_get_us", report.Median(gets[1:])),
	)
	return nil
}

// opened is a store just opened, and its first get: of the key that a load writes first.
type opened struct {
	store    engine.Store
	openTook time.Duration
	getTook  time.Duration
	found    bool
}

func openAndGet(context *Context, dir string) (opened, error) {
	var opened opened
	var err error
	opened.openTook, err = measure.Timed(func() (err error) {
		opened.store, err = context.open(dir)
		return err
	})
	if err != nil {
		return opened, err
	}
	key := shapeOpens.Key(0)
	var value []byte
	opened.getTook, err = measure.Timed(func() (err error) {
		value, opened.found, err = opened.store.Get(key, nil)
		return err
	})
	if err != nil {
		return opened, err
	}
	var checker data.ValueChecker
	if _, whole := checker.VersionOf(0, value, versions); opened.found && !whole {
		return opened, errors.New("W12: the first get has a wrong value")
	}
	return opened, nil
}

func openAfterKill(context *Context) error {
	dir, err := context.freshStore(storeKilled)
	if err != nil {
		return err
	}
	victim := context.Job
	victim.Step = Victim
	acknowledged, err := context.KillLoad(victim, context.Job.Keys/2)
	if err != nil {
		return err
	}
	opened, err := openAndGet(context, dir)
	if err != nil {
		return err
	}
	found, gaps, err := countFound(opened.store, min(context.Job.Keys, acknowledged+batchLen))
	if err != nil {
		return err
	}
	if err := opened.store.Close(); err != nil {
		return err
	}
	if context.Engine.BufferedSurvivesKill && (found < acknowledged || gaps > 0) {
		return fmt.Errorf("W12: %d acknowledged, %d found, %d gaps", acknowledged, found, gaps)
	}
	share := 100 * float64(min(found, acknowledged)) / float64(max(acknowledged, 1))
	context.report(
		report.New("W12", "open after kill -9", measure.Milliseconds(opened.openTook), "ms").
			With("first_get_us", measure.MicrosecondsEach(1, opened.getTook)),
		report.New("W12", "found after kill -9 without syncs", share, "%").
			With("acknowledged", acknowledged).With("found", found).With("gaps", gaps),
	)
	return context.removeStore(storeKilled)
}

// countFound says how many entries 0..end are there, and how many are missing before the last one
// found. One batch more than was acknowledged may have arrived.
func countFound(store engine.Store, end uint64) (found, gaps uint64, err error) {
	var checker data.ValueChecker
	var key, value []byte
	for index := range end {
		key = shapeOpens.Append(index, key[:0])
		out, there, err := store.Get(key, value[:0])
		if err != nil {
			return found, gaps, err
		}
		if !there {
			continue
		}
		value = out
		if _, whole := checker.VersionOf(index, value, loaded); !whole {
			return found, gaps, fmt.Errorf("W12: key %d has a wrong value after the kill", index)
		}
		gaps = index - found
		found++
	}
	return found, gaps, nil
}

// runVictim loads until it is killed, or until all is loaded; then leaves without closing.
func runVictim(context *Context) error {
	store, err := context.open(context.store(storeKilled))
	if err != nil {
		return err
	}
	_, err = loadOf(shapeOpens).run(store, context.Job.Keys, data.Same, func(done uint64) error {
		_, err := fmt.Fprintln(os.Stdout, done)
		return err
	})
	if err != nil {
		return err
	}
	os.Exit(0) // Nothing is closed: to the store this is a kill.
	return nil
}
