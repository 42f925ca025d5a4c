// Package child is the program around an engine, with the same command line as the programs of the
// engines in Rust: `about` says as one JSON object what the engine is and how it is set up;
// `bench-child` runs one step and says its figures, one JSON object per line; `driven` does what
// standard input says. All on standard output; complaints go to standard error.
//
// Invariants
//   - J1  arguments and parse are inverse to each other.
package child

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"lithedb/bench-peers/internal/driven"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/report"
	"lithedb/bench-peers/internal/workloads"
)

// The subcommands.
const (
	aboutCommand  = "about"
	childCommand  = "bench-child" // Takes a job.
	drivenCommand = "driven"      // Takes a directory and memory.
)

// Main is the whole program.
func Main(engine engine.Engine) {
	if err := run(engine, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", engine.Name, err)
		os.Exit(1)
	}
}

func run(engine engine.Engine, arguments []string, output io.Writer) error {
	switch {
	case len(arguments) == 1 && arguments[0] == aboutCommand:
		text, err := engine.Describe()
		if err == nil {
			_, err = fmt.Fprintln(output, string(text))
		}
		return err
	case len(arguments) > 0 && arguments[0] == childCommand:
		return runStep(engine, arguments[1:], output)
	case len(arguments) > 0 && arguments[0] == drivenCommand:
		return drive(engine, arguments[1:], output)
	default:
		return fmt.Errorf("usage: %s %s, or %s %s --step STEP --engine %s --dir DIR --keys N "+
			"--divisor N --memory SIZE [--label TEXT] [--file FILE].., or %s %s --dir DIR "+
			"--memory SIZE",
			os.Args[0], aboutCommand, os.Args[0], childCommand, engine.Name,
			os.Args[0], drivenCommand)
	}
}

func drive(kind engine.Engine, words []string, output io.Writer) error {
	var dir, text string
	flags := flag.NewFlagSet(drivenCommand, flag.ContinueOnError)
	flags.StringVar(&dir, "dir", "", "the directory of the store")
	flags.StringVar(&text, "memory", "", "memory for the engine: bytes, 256MiB, 1GiB, default")
	if err := flags.Parse(words); err != nil {
		return err
	}
	if flags.NArg() > 0 || dir == "" {
		return errors.New("wanted: --dir, --memory")
	}
	memory, err := engine.ParseMemory(text)
	if err != nil {
		return err
	}
	return driven.Run(kind, dir, memory, os.Stdin, output)
}

func runStep(engine engine.Engine, words []string, output io.Writer) error {
	job, err := parse(words)
	if err != nil {
		return err
	}
	if job.Engine != engine.Name {
		return fmt.Errorf("this is %s, not %s", engine.Name, job.Engine)
	}
	// At once: whoever ends a step that takes too long has the figures so far.
	tell := func(row report.Row) {
		// If nobody listens any more, the figures are of no use: that is no failure of the step.
		_, _ = output.Write(row.JSONLine())
	}
	return workloads.Run(&workloads.Context{
		Job: job, Engine: engine, KillLoad: killLoad, Tell: tell,
	})
}

func parse(arguments []string) (workloads.Job, error) {
	var job workloads.Job
	var memory string
	flags := flag.NewFlagSet(childCommand, flag.ContinueOnError)
	flags.StringVar((*string)(&job.Step), "step", "", "what to run")
	flags.StringVar(&job.Engine, "engine", "", "engine, for programs that have several")
	flags.StringVar(&job.Label, "label", "", "stands before the name of the workload in reports")
	flags.StringVar(&job.Dir, "dir", "", "holds the stores, one directory each")
	flags.Uint64Var(&job.Keys, "keys", 0, "keys of the W3 store")
	flags.Uint64Var(&job.Divisor, "divisor", 0, "all other counts are divided by this")
	flags.StringVar(&memory, "memory", "", "memory for the engine: bytes, 256MiB, 1GiB, default")
	flags.Func("file", "text for W13; may be given several times", func(path string) error {
		job.Files = append(job.Files, path)
		return nil
	})
	if err := flags.Parse(arguments); err != nil {
		return job, err
	}
	if flags.NArg() > 0 || job.Step == "" || job.Dir == "" || job.Keys == 0 || job.Divisor == 0 {
		return job, errors.New("wanted: --step, --engine, --dir, --keys, --divisor, --memory")
	}
	var err error
	job.Memory, err = engine.ParseMemory(memory)
	return job, err
}

// arguments is the command line (after the subcommand) that says a job.
func arguments(job workloads.Job) []string {
	words := []string{
		"--step", string(job.Step), "--engine", job.Engine, "--label", job.Label,
		"--dir", job.Dir, "--keys", strconv.FormatUint(job.Keys, 10),
		"--divisor", strconv.FormatUint(job.Divisor, 10), "--memory", job.Memory.String(),
	}
	for _, file := range job.Files {
		words = append(words, "--file", file)
	}
	return words
}

// killLoad runs a victim until that many entries are acknowledged, and kills it. How many were
// acknowledged is what it said last: it may have got further, but nobody was told.
func killLoad(victim workloads.Job, atLeast uint64) (uint64, error) {
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	command := exec.Command(program, append([]string{childCommand}, arguments(victim)...)...)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := command.Start(); err != nil {
		return 0, err
	}
	acknowledged, killed := uint64(0), false
	for lines := bufio.NewReader(output); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // A kill may cut the last line short: only whole lines count.
		}
		if number, err := strconv.ParseUint(line[:len(line)-1], 10, 64); err == nil {
			acknowledged = max(acknowledged, number)
		}
		if acknowledged >= atLeast && !killed {
			if err := command.Process.Kill(); err != nil {
				return 0, err
			}
			killed = true
		}
	}
	ended := command.Wait()
	if !killed {
		return 0, fmt.Errorf("the victim ended by itself after %d entries: %v", acknowledged, ended)
	}
	return acknowledged, nil
}
