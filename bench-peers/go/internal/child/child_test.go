package child

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/mapstore"
	"lithedb/bench-peers/internal/workloads"
)

func TestAJobSurvivesTheCommandLine(t *testing.T) {
	for _, memory := range []engine.Memory{{}, engine.MemoryRule} {
		job := workloads.Job{
			Step: "w3-random", Engine: "map", Label: "W16 1M", Dir: "/a b/c", Keys: 7, Divisor: 3,
			Memory: memory, Files: []string{"x", "y z"},
		}
		parsed, err := parse(arguments(job))
		if err != nil || !reflect.DeepEqual(parsed, job) {
			t.Errorf("%v, %v", parsed, err)
		}
	}
}

func TestAStepSaysItsFiguresWithTheLabel(t *testing.T) {
	job := workloads.Job{
		Step: "w1", Engine: "map", Label: "X", Dir: t.TempDir(), Keys: 10, Divisor: 1000,
		Memory: engine.MemoryRule,
	}
	var output bytes.Buffer
	err := run(mapstore.New(nil), append([]string{childCommand}, arguments(job)...), &output)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(output.String()), "\n")
	var row struct {
		Workload string
		Details  struct{ Checksum uint64 }
	}
	if err := json.Unmarshal([]byte(lines[0]), &row); err != nil || len(lines) != 2 {
		t.Fatalf("%v in %s", err, output.String())
	}
	if row.Workload != "X W1" || row.Details.Checksum == 0 {
		t.Fatalf("%v", row)
	}
}

func TestAboutNamesTheEngineAndWhatSurvivesAKill(t *testing.T) {
	var output bytes.Buffer
	if err := run(mapstore.New(nil), []string{aboutCommand}, &output); err != nil {
		t.Fatal(err)
	}
	var about map[string]any
	if err := json.Unmarshal(output.Bytes(), &about); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"engine": "map", "language": "Go", "safety": "kill", "version": "?",
	} {
		if about[name] != want {
			t.Errorf("%s: %v", name, about[name])
		}
	}
}

func TestWhatIsNoJobIsRefused(t *testing.T) {
	for _, line := range []string{
		"", "bench", "bench-child", "bench-child --step w1 --engine map --dir d --keys 1",
		"bench-child --step w17 --engine map --dir d --keys 1 --divisor 1 --memory default",
		"bench-child --step w1 --engine other --dir d --keys 1 --divisor 1 --memory default",
		"bench-child --step w1 --engine map --dir d --keys 1 --divisor 1 --memory 1x",
	} {
		if err := run(mapstore.New(nil), strings.Fields(line), &bytes.Buffer{}); err == nil {
			t.Errorf("%q", line)
		}
	}
}
