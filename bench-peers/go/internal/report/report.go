// Package report is the rows of a report, in the form that the runner reads: one JSON object per
// line, like the children of `lithe bench`.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Row is one figure.
type Row struct {
	// Workload is `W3`, `W16 1M W4`, ..
	Workload string
	// Metric is what was measured: `random`, `uniform, 2 threads`, ..
	Metric string
	// Value is the figure, in Unit.
	Value float64
	// Unit is `ops/s`, `ns`, `us`, `ms`, `x`, `MiB`, ..
	Unit string
	// Details are checksums, counts and what else explains the figure: string, uint64 or float64.
	Details map[string]any
}

// New is a figure without details.
func New(workload, metric string, value float64, unit string) Row {
	return Row{workload, metric, value, unit, map[string]any{}}
}

// With adds a detail: a string, uint64 or float64.
func (row Row) With(name string, value any) Row {
	row.Details[name] = value
	return row
}

// object is the row as JSON says it: a figure that it cannot say (infinite) becomes null.
func (row Row) object() map[string]any {
	details := make(map[string]any, len(row.Details))
	for name, value := range row.Details {
		if number, ok := value.(float64); ok {
			value = numeral(number)
		}
		details[name] = value
	}
	return map[string]any{
		"workload": row.Workload, "metric": row.Metric, "value": numeral(row.Value),
		"unit": row.Unit, "details": details,
	}
}

// numeral always has a point or an exponent, so that the reader tells figures from counts.
func numeral(value float64) json.RawMessage {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return json.RawMessage("null")
	}
	text := strconv.FormatFloat(value, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.RawMessage(text)
}

// JSONLine is one JSON object and the end of the line.
func (row Row) JSONLine() []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(row.object()); err != nil {
		panic(fmt.Sprintf("strings and numbers can always be said in JSON: %v", err))
	}
	return text.Bytes()
}

// Median is the middle one; of an even count the mean of the two in the middle; NaN of none.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	switch {
	case len(sorted) == 0:
		return math.NaN()
	case len(sorted)%2 == 1:
		return sorted[middle]
	default:
		return (sorted[middle-1] + sorted[middle]) / 2
	}
}
