// Package measure is time, latencies, and what a run costs beside time. The only place here that
// reads the clock and the system's counters; must not know engines.
//
// Invariants
//   - T1  A stopwatch runs only while an engine works. Making keys and values, and checking what
//     was read, happen while it stands.
package measure

import "time"

// The time since a moment of this process is one look at the monotonic clock; time.Now would be two
// looks at two clocks.
var began = time.Now()

// Now is this moment, from the start of the process.
func Now() time.Duration {
	return time.Since(began)
}

// Timed is how long work took.
func Timed(work func() error) (time.Duration, error) {
	start := Now()
	err := work()
	return Now() - start, err
}

// Stopwatch adds up the time of what it is given to run.
type Stopwatch struct {
	Total time.Duration
}

// Time runs work with the watch on.
func (watch *Stopwatch) Time(work func() error) error {
	took, err := Timed(work)
	watch.Total += took
	return err
}

// Rate is operations per second.
func Rate(count uint64, took time.Duration) float64 {
	return float64(count) / max(took.Seconds(), 1e-300)
}

// NanosecondsEach is nanoseconds per operation.
func NanosecondsEach(count uint64, took time.Duration) float64 {
	return float64(took.Nanoseconds()) / float64(max(count, 1))
}

// MicrosecondsEach is microseconds per operation.
func MicrosecondsEach(count uint64, took time.Duration) float64 {
	return NanosecondsEach(count, took) / 1e3
}

// Milliseconds of a duration.
func Milliseconds(took time.Duration) float64 {
	return took.Seconds() * 1e3
}
