package report

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestLatencyJoinsRounds(t *testing.T) {
	var rounds []*Histogram
	for _, ns := range []int64{100, 300, 200} {
		h := NewHistogram()
		for range 10 {
			h.Record(ns)
		}
		rounds = append(rounds, h)
	}
	r := Result{Scenario: "latency", System: "hugebus", PayloadBytes: 48}
	r.Latency(rounds)
	if r.P50 != 200 || r.Max != 300 || r.Rounds != 3 || r.Frames != 30 || r.Spread != 1 {
		t.Errorf("got %+v", r)
	}
}

func TestThroughputJoinsRounds(t *testing.T) {
	r := Result{PayloadBytes: 50}
	r.Throughput([]Rate{{Frames: 100, Nanoseconds: 1e9}, {Frames: 600, Nanoseconds: 2e9}, {Frames: 100, Nanoseconds: 5e8}})
	if r.FramesPerSecond != 200 || r.BytesPerSecond != 10_000 || r.Frames != 800 || r.Rounds != 3 || r.Spread != 1 {
		t.Errorf("got %+v", r)
	}
	if got := (Rate{Frames: 5}).PerSecond(); got != 0 {
		t.Errorf("a rate over no time is %v, want 0", got)
	}
}

func TestJSONLeavesOutWhatDoesNotApply(t *testing.T) {
	var out bytes.Buffer
	latency := Result{
		Scenario: "latency", System: "hugebus", PayloadBytes: 48, Batch: 1, Rounds: 5, RawRTT: 400,
		Percentiles: Percentiles{P50: 1, P90: 2, P99: 3, P999: 4, P9999: 5, Max: 6},
	}
	throughput := Result{Scenario: "throughput", System: "hugebus", PayloadBytes: 48, Batch: 16, Rounds: 5, FramesPerSecond: 7, BytesPerSecond: 8}
	if err := WriteJSON(&out, []Result{latency, throughput}); err != nil {
		t.Fatal(err)
	}
	var objects []map[string]any
	if err := json.Unmarshal(out.Bytes(), &objects); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	want := [][]string{
		{"batch", "max_ns", "p50_ns", "p90_ns", "p9999_ns", "p999_ns", "p99_ns", "payload_bytes", "raw_rtt_p50_ns", "rounds", "scenario", "spread", "system"},
		{"batch", "bytes_per_s", "frames_per_s", "payload_bytes", "rounds", "scenario", "spread", "system"},
	}
	for i, object := range objects {
		var names []string
		for name := range object {
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Equal(names, want[i]) {
			t.Errorf("object %d has %v, want %v", i, names, want[i])
		}
	}
}

func TestJSONOfNothingIsAnEmptyArray(t *testing.T) {
	var out bytes.Buffer
	if err := WriteJSON(&out, nil); err != nil || strings.TrimSpace(out.String()) != "[]" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestTableShowsUsedColumnsAndTheRatio(t *testing.T) {
	var out strings.Builder
	r := Result{Scenario: "latency", System: "hugebus", PayloadBytes: 48, Batch: 1, RawRTT: 400, Percentiles: Percentiles{P50: 600}}
	if err := WriteTable(&out, []Result{r}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	head, row := strings.Fields(lines[0]), strings.Join(strings.Fields(lines[1]), " ")
	if slices.Contains(head, "frames/s") || slices.Contains(head, "variant") {
		t.Errorf("columns that nobody uses: %v", head)
	}
	if want := "latency hugebus 48B 1 600 ns 400 ns 1.50 0%"; row != want {
		t.Errorf("row %q, want %q", row, want)
	}
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Duration(0), ""}, {Duration(7), "7 ns"}, {Duration(999), "999 ns"}, {Duration(1234), "1.23 µs"}, {Duration(45_670), "45.7 µs"},
		{Duration(345_678), "346 µs"}, {Duration(2_500_000), "2.50 ms"}, {Duration(61e9), "61.0 s"},
		{Quantity(0), ""}, {Quantity(12), "12.0"}, {Quantity(999.4), "999"}, {Quantity(999.6), "1.00 k"}, {Quantity(35_600_000), "35.6 M"},
		{Quantity(1.5e9), "1.50 G"}, {Quantity(7e15), "7000 T"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
