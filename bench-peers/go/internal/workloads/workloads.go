// Package workloads is the workloads W1 to W15, one file each (or one for a few that are alike):
// ports of crates/bench/src/workload with the same operations, checks, steps and names of figures.
//
// A workload gets a Context, opens the store it needs, reports its figures and closes the store.
// Stores outlive the process: `w1` is scanned by W2; `w3` is read, overwritten and reopened by W2,
// W4, W5, W6, W11, W12 and W15, in this order.
package workloads

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/report"
)

const (
	// The store of W1 and its keys; the store of W3.
	storeSmall    = "w1"
	keysSmall     = 100_000
	valueLenSmall = 21
	storeLarge    = "w3"

	versionOverwrite = 4
)

var (
	// Versions of values of the W3 store: the load writes 0, YCSB A, B and F 1 to 3, W11 the last.
	versions    = []uint64{0, 1, 2, 3, versionOverwrite}
	overwritten = []uint64{versionOverwrite}
	loaded      = []uint64{0}
)

// Names of the sequences of random choices (`w` in the specification). No two uses share one.
const (
	streamUnflushed   = 0x20
	streamWarmUp      = 0x40
	streamGets        = 0x41
	streamMisses      = 0x42
	streamSeeks       = 0x50
	streamWarmUpSeeks = 0x51
	streamYCSB        = 0x60 // And the five after it.
	streamTableGets   = 0x80
	streamLargeGets   = 0xA0
	streamOverwrites  = 0xB0
	streamTailGets    = 0xF0
)

// Step is what a process runs, as the command line says it. Each step leaves its store closed.
type Step string

// Victim loads like W3, says after each batch how much was acknowledged, and waits to be killed.
const Victim Step = "victim"

var steps = map[Step]func(*Context) error{
	"w1": runSmall, "w2-small": scanSmall, "w2-large": scanLarge,
	"w3-random": loadRandom, "w3-ascending": loadAscending,
	"w4": runGets, "w5": runSeeks, "w6": runYCSB, "w6-reads": runYCSBReads,
	"w7": durablePuts, "w8": durableTables,
	"w9": runSingle, "w10": runLargeValues, "w11": runOverwrites, "w12": runOpens, "w13": runText,
	"w14": runBulk, "w15": runTail, Victim: runVictim,
}

// Job is one step with its size.
type Job struct {
	// Step to run.
	Step Step
	// Engine is its name, for programs that have several.
	Engine string
	// Label stands before the name of the workload in reports.
	Label string
	// Dir holds the stores, one directory each.
	Dir string
	// Keys of the W3 store.
	Keys uint64
	// Divisor of all other counts.
	Divisor uint64
	// Memory for the engine.
	Memory engine.Memory
	// Files of text for W13.
	Files []string
}

// Context is what a workload works with.
type Context struct {
	Job Job
	// Engine under test.
	Engine engine.Engine
	// KillLoad runs a victim until that many entries are acknowledged, kills it, and says how many
	// were (W12).
	KillLoad func(victim Job, atLeast uint64) (uint64, error)
	// Tell learns of each figure as soon as it is known.
	Tell func(report.Row)
}

// Run runs the step of the job.
func Run(context *Context) error {
	run, known := steps[context.Job.Step]
	if !known {
		return fmt.Errorf("unknown step %q", context.Job.Step)
	}
	return run(context)
}

// count of the full benchmark, at the size of this run.
func (context *Context) count(full uint64) uint64 {
	return max(full/context.Job.Divisor, 1)
}

// store says where the store of that name lies.
func (context *Context) store(name string) string {
	return filepath.Join(context.Job.Dir, name)
}

// freshStore is an empty directory for the store of that name.
func (context *Context) freshStore(name string) (string, error) {
	dir := context.store(name)
	return dir, errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
}

func (context *Context) removeStore(name string) error {
	return os.RemoveAll(context.store(name))
}

// open opens a store, to be written without syncs but for one at the end.
func (context *Context) open(dir string) (engine.Store, error) {
	return context.Engine.Open(dir, context.Job.Memory, engine.Buffered)
}

// openFresh opens a new store in place of an old one of that name.
func (context *Context) openFresh(name string, strongest engine.Commit) (engine.Store, error) {
	dir, err := context.freshStore(name)
	if err != nil {
		return nil, err
	}
	return context.Engine.Open(dir, context.Job.Memory, strongest)
}

func (context *Context) report(rows ...report.Row) {
	for _, row := range rows {
		if context.Job.Label != "" {
			row.Workload = context.Job.Label + " " + row.Workload
		}
		context.Tell(row)
	}
}
