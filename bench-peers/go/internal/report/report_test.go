package report

import (
	"math"
	"testing"
)

func TestARowIsALineThatTellsCountsFromFigures(t *testing.T) {
	row := New("W1", "batch <x>", 20, "ops/s").
		With("note", "a \"b\"").With("checksum", uint64(17)).With("sync_ms", 2.0)
	endless := New("W1", "y", math.Inf(1), "ns")
	text := string(row.JSONLine()) + string(endless.JSONLine())
	want := `{"details":{"checksum":17,"note":"a \"b\"","sync_ms":2.0},"metric":"batch <x>",` +
		`"unit":"ops/s","value":20.0,"workload":"W1"}` + "\n" +
		`{"details":{},"metric":"y","unit":"ns","value":null,"workload":"W1"}` + "\n"
	if text != want {
		t.Fatal(text)
	}
}

func TestTheMedianIsTheMiddleOne(t *testing.T) {
	for _, one := range []struct {
		values []float64
		want   float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}, {[]float64{7}, 7}} {
		if got := Median(one.values); got != one.want {
			t.Errorf("%v: %v", one.values, got)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("no run has no median")
	}
}
