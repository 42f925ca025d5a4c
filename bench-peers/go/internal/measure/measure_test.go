package measure

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"lithedb/bench-peers/internal/report"
)

func within(t *testing.T, value, low, high float64) {
	t.Helper()
	if value < low || value > high {
		t.Fatalf("%v is not within %v and %v", value, low, high)
	}
}

func TestFiguresAreInTheUnitThatTheyName(t *testing.T) {
	took := 2 * time.Millisecond
	within(t, Rate(1000, took), 499_999, 500_001)
	within(t, NanosecondsEach(1000, took), 1999, 2001)
	within(t, MicrosecondsEach(1000, took), 1.99, 2.01)
	within(t, Milliseconds(took), 1.99, 2.01)
}

func TestQuantilesOfMergedThreadsAreThoseOfAllOperations(t *testing.T) {
	low, high := NewLatency(), NewLatency()
	for us := 1; us <= 500; us++ {
		low.Record(time.Duration(us) * time.Microsecond)
		high.Record(time.Duration(500+us) * time.Microsecond)
	}
	low.Merge(high)
	within(t, float64(low.Count()), 1000, 1000)
	within(t, low.QuantileUS(0.5), 500, 501)
	within(t, low.QuantileUS(0.99), 990, 991)
	within(t, low.MaxUS(), 1000, 1001)
	if rows := low.Rows("W0", "read"); len(rows) != 3 || rows[2].Metric != "read p99.9" {
		t.Fatalf("%v", rows)
	}
}

func TestAnEndlessOperationCountsAsTheLongest(t *testing.T) {
	latency := NewLatency()
	latency.Record(time.Hour)
	within(t, latency.MaxUS(), 59_000_000, 61_000_000)
	if rows := NewLatency().Rows("W0", "read"); rows != nil {
		t.Fatalf("nothing was counted: %v", rows)
	}
}

func TestFieldsAreReadByTheirWholeName(t *testing.T) {
	io := "rchar: 5\nwchar: 17\nwrite_bytes: 4096\ncancelled_write_bytes: 9\n"
	for name, want := range map[string]uint64{"write_bytes:": 4096, "wchar:": 17} {
		if number := field(io, name); number == nil || *number != want {
			t.Errorf("%s %v", name, number)
		}
	}
	if number := field("VmHWM:\t    2048 kB\n", "VmHWM:"); number == nil || *number != 2048 {
		t.Errorf("VmHWM %v", number)
	}
	if field(io, "VmHWM:") != nil {
		t.Error("what the system does not tell is absent")
	}
}

func TestTheSizeOfADirectoryIsThatOfAllFilesBelow(t *testing.T) {
	dir := t.TempDir()
	for name, length := range map[string]int{"a": 10, "below/b": 5000} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, length), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	size, err := SizeOf(dir)
	if err != nil || size.Apparent != 5010 || size.Files != 2 {
		t.Fatalf("%v, %v", size, err)
	}
	size, err = SizeOf(filepath.Join(dir, "none"))
	if err != nil || size != (DirectorySize{}) {
		t.Fatalf("%v, %v", size, err)
	}
}

func TestADirectoryIsWaitedForUntilItIsStillButNotForEver(t *testing.T) {
	for _, one := range []struct{ changes, want time.Duration }{
		{0, 1500 * time.Millisecond}, {2 * time.Second, 3500 * time.Millisecond},
		{2 * time.Minute, time.Minute},
	} {
		dir := t.TempDir()
		// Its clock moves on only when all sleep.
		synctest.Test(t, func(t *testing.T) {
			go func() {
				// Just before each look.
				for number := range one.changes / lookEvery {
					time.Sleep(lookEvery - time.Millisecond)
					path := filepath.Join(dir, number.String())
					if err := os.WriteFile(path, nil, 0o644); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			}()
			start := time.Now()
			if err := WaitUntilStill(dir); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != one.want {
				t.Errorf("%v of changes: waited for %v", one.changes, took)
			}
			time.Sleep(one.changes) // The other one has ended.
		})
	}
}

func TestTheFigureIsThatOfTheLastPointAndAllPointsAreDetails(t *testing.T) {
	at := func(name string, storage, size uint64) point {
		return point{
			name, Process{StorageBytesWritten: &storage},
			DirectorySize{Allocated: size, Apparent: size / 2, Files: 3},
		}
	}
	costs := Costs{points: []point{at("sync", 2000, 1500), at("close", 3000, 1200)}}
	rows := map[string]report.Row{}
	for _, row := range costs.Rows("W3", "random", 1000, 1000) {
		rows[row.Metric] = row
	}
	written, size := rows["random write amplification"], rows["random directory / data"]
	within(t, written.Value, 3, 3)
	within(t, written.Details["sync"].(float64), 2, 2)
	within(t, size.Value, 1.2, 1.2)
	within(t, size.Details["apparent"].(float64), 0.6, 0.6)
	if _, found := rows["random peak memory"]; found {
		t.Error("what the system does not tell is absent")
	}
}

func TestWorkShowsInTheFiguresOfTheProcess(t *testing.T) {
	before, path := ProcessNow(), filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	spent := ProcessNow().Since(before)
	if spent.CPU <= 0 || *spent.MemoryPeak < mib || *spent.CallBytesWritten < 8*mib {
		t.Fatalf("%v", spent)
	}
}
