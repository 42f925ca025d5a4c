package workloads_test

// All workloads at a thousandth of their size: on a map in memory, to see that they run, report,
// and notice an engine that loses or changes entries; and on every engine, to see that it passes.

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lithedb/bench-peers/internal/badgerstore"
	"lithedb/bench-peers/internal/bboltstore"
	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/mapstore"
	"lithedb/bench-peers/internal/pebblestore"
	"lithedb/bench-peers/internal/report"
	"lithedb/bench-peers/internal/workloads"
)

const (
	keys    = 3000
	divisor = 1000
)

var (
	onW3 = []workloads.Step{"w2-large", "w4", "w5", "w6-reads", "w6", "w11", "w12", "w15"}
	all  = append([]workloads.Step{
		"w1", "w2-small", "w3-ascending", "w7", "w8", "w9", "w10", "w14", "w3-random",
	}, onW3...)
)

func context(
	t *testing.T, kind engine.Engine, dir string, step workloads.Step, rows *[]report.Row,
) workloads.Context {
	return workloads.Context{
		Job: workloads.Job{
			Step: step, Engine: kind.Name, Dir: dir, Keys: keys, Divisor: divisor,
			Memory: engine.MemoryRule,
		},
		Engine: kind,
		// Stands for a process: loads a part.
		KillLoad: func(victim workloads.Job, atLeast uint64) (uint64, error) {
			load(t, kind, filepath.Join(victim.Dir, "w12"), atLeast)
			return atLeast, nil
		},
		Tell: func(row report.Row) { *rows = append(*rows, row) },
	}
}

func load(t *testing.T, kind engine.Engine, dir string, count uint64) {
	t.Helper()
	var records data.Records
	records.Refill(data.Random16, 0, count, data.Same, 100, data.VersionLoad)
	store, err := kind.Open(dir, engine.MemoryRule, engine.Buffered)
	if err == nil {
		err = errors.Join(store.PutBatch(&records, engine.Buffered), store.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func rowsOf(
	t *testing.T, kind engine.Engine, dir string, steps ...workloads.Step,
) ([]report.Row, error) {
	var rows []report.Row
	for _, step := range steps {
		context := context(t, kind, dir, step, &rows)
		if err := workloads.Run(&context); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func metric(t *testing.T, rows []report.Row, name string) report.Row {
	t.Helper()
	for _, row := range rows {
		if row.Metric == name {
			return row
		}
	}
	t.Fatalf("no %s", name)
	return report.Row{}
}

func TestEveryEnginePassesEveryStepWithFiguresThatAreNumbers(t *testing.T) {
	for _, kind := range []engine.Engine{
		mapstore.New(nil), pebblestore.Engine, bboltstore.Engine, badgerstore.Engine,
	} {
		t.Run(kind.Name, func(t *testing.T) {
			dir := t.TempDir()
			for _, step := range all {
				rows, err := rowsOf(t, kind, dir, step)
				if err != nil || len(rows) == 0 {
					t.Fatalf("%s: %d rows, %v", step, len(rows), err)
				}
				for _, row := range rows {
					if math.IsNaN(row.Value) || math.IsInf(row.Value, 0) || row.Value < 0 {
						t.Errorf("%s: %v", step, row)
					}
				}
			}
		})
	}
}

func TestYCSBReportsBothKindsOfOperationsOfEachMix(t *testing.T) {
	rows, err := rowsOf(t, mapstore.New(nil), t.TempDir(), "w3-random", "w6")
	if err != nil {
		t.Fatal(err)
	}
	for _, mix := range []string{"A", "B", "C", "D", "E", "F"} {
		row := metric(t, rows, mix)
		reads, writes := row.Details["reads"].(uint64), row.Details["writes"].(uint64)
		if reads+writes != 1_000_000/divisor || (writes > 0) != (mix != "C") {
			t.Errorf("%v", row)
		}
		metric(t, rows, mix+" read p99.9")
	}
}

func TestOverwritesTellTheirCostsFromThoseOfMaintenance(t *testing.T) {
	rows, err := rowsOf(t, pebblestore.Engine, t.TempDir(), "w3-random", "w11")
	if err != nil {
		t.Fatal(err)
	}
	for name, points := range map[string][]string{
		"directory / data":             {"synced", "flushed"},
		"maintenance directory / data": {"left_alone", "compacted", "closed"},
	} {
		details := metric(t, rows, name).Details
		for _, point := range points {
			if _, found := details[point]; !found {
				t.Errorf("%s: no %s in %v", name, point, details)
			}
		}
		if len(details) != len(points)+2 {
			t.Errorf("%s: %v", name, details)
		}
	}
}

func TestTheTailTellsOfReadsAndWrites(t *testing.T) {
	rows, err := rowsOf(t, mapstore.New(nil), t.TempDir(), "w3-random", "w15")
	if err != nil {
		t.Fatal(err)
	}
	median := metric(t, rows, "write of 1000 p50 under load").Value
	longest := metric(t, rows, "longest stall of a write").Value * 1e3
	if median <= 0 || median > longest {
		t.Errorf("median %v us, longest %v us", median, longest)
	}
	rate := metric(t, rows, "load beside the reads").Value
	if reads := metric(t, rows, "read p50 under load"); reads.Details["load_ops_per_s"] != rate {
		t.Errorf("%v, %v", rate, reads)
	}
}

func TestAKillIsReportedWithWhatWasAcknowledgedAndFound(t *testing.T) {
	rows, err := rowsOf(t, mapstore.New(nil), t.TempDir(), "w3-random", "w12")
	if err != nil {
		t.Fatal(err)
	}
	row := metric(t, rows, "found after kill -9 without syncs")
	if row.Value != 100 || row.Details["found"] != uint64(keys/2) || row.Details["gaps"] != uint64(0) {
		t.Errorf("%v", row)
	}
}

func TestTextIsReadFromAllFilesWithoutEmptyLines(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for name, text := range map[string]string{"a": "one\ntwo\n\none\n", "b": "three\r\nfour"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	var rows []report.Row
	context := context(t, mapstore.New(nil), dir, "w13", &rows)
	if err := workloads.Run(&context); err == nil || !strings.Contains(err.Error(), "--file") {
		t.Errorf("%v", err)
	}
	context.Job.Files = files
	if err := workloads.Run(&context); err != nil {
		t.Fatal(err)
	}
	details := rows[0].Details
	if details["lines"] != uint64(5) || details["distinct"] != uint64(4) ||
		details["bytes"] != uint64(19) {
		t.Errorf("%v", details)
	}
	context.Job.Files = []string{"/none/such"}
	if err := workloads.Run(&context); err == nil || !strings.Contains(err.Error(), "/none/such") {
		t.Errorf("%v", err)
	}
}

func TestAnEngineThatLosesEntriesFailsEveryWorkload(t *testing.T) {
	for _, step := range []workloads.Step{
		"w1", "w3-random", "w3-ascending", "w7", "w8", "w9", "w14",
	} {
		if _, err := rowsOf(t, mapstore.New(mapstore.Forgetful), t.TempDir(), step); err == nil {
			t.Errorf("%s", step)
		}
	}
	for _, step := range onW3 {
		failsOnItsStore(t, mapstore.New(mapstore.Forgetful), step)
	}
}

func TestAnEngineThatChangesValuesFailsTheWorkloadsThatReadThem(t *testing.T) {
	for _, step := range onW3 {
		if step != "w2-large" {
			failsOnItsStore(t, mapstore.New(mapstore.Garbling), step)
		}
	}
}

// failsOnItsStore loads the W3 store with a faulty engine, without the check after the load.
func failsOnItsStore(t *testing.T, faulty engine.Engine, step workloads.Step) {
	t.Helper()
	dir := t.TempDir()
	load(t, faulty, filepath.Join(dir, "w3"), keys)
	if _, err := rowsOf(t, faulty, dir, step); err == nil {
		t.Errorf("%s did not notice", step)
	}
}

func TestAVictimThatCannotBeRunFailsTheWorkload(t *testing.T) {
	kind, dir := mapstore.New(nil), t.TempDir()
	if _, err := rowsOf(t, kind, dir, "w3-random"); err != nil {
		t.Fatal(err)
	}
	context := context(t, kind, dir, "w12", &[]report.Row{})
	context.KillLoad = func(workloads.Job, uint64) (uint64, error) {
		return 0, errors.New("no such program")
	}
	if err := workloads.Run(&context); err == nil {
		t.Error("the kill was not needed")
	}
}
