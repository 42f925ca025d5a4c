package workloads

import (
	"bytes"
	"errors"
	"os"

	"lithedb/bench-peers/internal/data"
	"lithedb/bench-peers/internal/engine"
	"lithedb/bench-peers/internal/measure"
	"lithedb/bench-peers/internal/report"
)

const storeText = "w13"

// W13: lines of text as keys and as values, in the order of the files, in batches of 1000, one sync
// at the end, inside the time. Empty lines are left out: not every engine takes empty keys.
func runText(context *Context) error {
	lines, err := linesOf(context.Job.Files)
	if err != nil {
		return err
	}
	store, err := context.openFresh(storeText, engine.Buffered)
	if err != nil {
		return err
	}
	var watch measure.Stopwatch
	var records data.Records
	put := func() error { return store.PutBatch(&records, engine.Buffered) }
	for first := 0; first < len(lines); first += batchLen {
		records.Clear()
		for _, line := range lines[first:min(len(lines), first+batchLen)] {
			records.Push(line, line)
		}
		if err := watch.Time(put); err != nil {
			return err
		}
	}
	if err := watch.Time(store.Sync); err != nil {
		return err
	}

	distinct, size := map[string]bool{}, 0
	var expected data.Seen
	for _, line := range lines {
		size += len(line)
		if !distinct[string(line)] {
			distinct[string(line)] = true
			expected.Add(line, line)
		}
	}
	seen, err := sum(store, engine.Walk{})
	if err != nil {
		return err
	}
	if err := mustBe(seen, expected, "W13"); err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	count := uint64(len(lines))
	context.report(report.New("W13", "lines of text", measure.Rate(count, watch.Total), "ops/s").
		With("lines", count).
		With("distinct", expected.Count).
		With("bytes", uint64(size)).
		With("checksum", expected.Checksum))
	return context.removeStore(storeText)
}

func linesOf(files []string) ([][]byte, error) {
	if len(files) == 0 {
		return nil, errors.New("W13 needs text: name one or more with --file")
	}
	var lines [][]byte
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range bytes.SplitSeq(text, []byte("\n")) {
			if len(line) > 0 {
				lines = append(lines, line)
			}
		}
	}
	return lines, nil
}
