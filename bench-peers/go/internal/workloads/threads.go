package workloads

import (
	"sync"
	"time"

	"lithedb/bench-peers/internal/measure"
)

// onThreads does the same work on several goroutines that begin together: what each returned for
// its number, and how long the slowest took. The error is the first of any.
func onThreads[T any](
	count uint64, work func(thread uint64) (T, error),
) ([]T, time.Duration, error) {
	results, times, errs := make([]T, count), make([]time.Duration, count), make([]error, count)
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	ready.Add(int(count))
	for thread := range count {
		done.Go(func() {
			ready.Done()
			<-begin
			times[thread], errs[thread] = measure.Timed(func() (err error) {
				results[thread], err = work(thread)
				return err
			})
		})
	}
	ready.Wait()
	close(begin)
	done.Wait()
	var slowest time.Duration
	for thread := range count {
		if errs[thread] != nil {
			return nil, 0, errs[thread]
		}
		slowest = max(slowest, times[thread])
	}
	return results, slowest, nil
}
