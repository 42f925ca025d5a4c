package workloads

import (
	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const getCount = 1_000_000

// W4: a million gets on the W3 store, each value copied out (on the clock) and checked (off it):
// uniform and zipf on one and two threads, on one snapshot, and misses.
//
// A pass of as many uniform gets, not counted, goes before: caches are then as full as they get.
func runGets(context *Context) error {
	keys := context.Job.Keys
	zipf := data.NewZipf(keys)
	store, err := context.open(context.store(storeLarge))
	if err != nil {
		return err
	}
	all := gets{
		stream: streamGets, count: context.count(getCount), threads: 1, keys: keys,
		valueLen: valueLen, choice: uniform, zipf: zipf, source: newest,
	}
	warmUp := all
	warmUp.stream = streamWarmUp
	if _, err := warmUp.run(store); err != nil {
		return err
	}

	popularOnes, oneSnapshot, missing := all, all, all
	popularOnes.choice = popular
	oneSnapshot.source = oneView
	missing.stream, missing.choice = streamMisses, misses
	for _, one := range []struct {
		name string
		gets gets
	}{
		{"uniform", all}, {"zipf", popularOnes}, {"one snapshot", oneSnapshot}, {"misses", missing},
	} {
		read, err := one.gets.run(store)
		if err != nil {
			return err
		}
		each := measure.NanosecondsEach(read.count, read.busy)
		context.report(report.New("W4", one.name, each, "ns").With("checksum", read.checksum))
	}
	for _, one := range []struct {
		name string
		gets gets
	}{{"uniform, 2 threads", all}, {"zipf, 2 threads", popularOnes}} {
		one.gets.threads = 2
		read, err := one.gets.run(store)
		if err != nil {
			return err
		}
		rate := measure.Rate(read.count, read.busy)
		context.report(report.New("W4", one.name, rate, "ops/s").With("checksum", read.checksum))
	}
	if err := store.Close(); err != nil {
		return err
	}
	context.report(measure.PeakMemoryRows("W4", "peak memory")...)
	return nil
}
