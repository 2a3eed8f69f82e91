package report

import (
	"math"
	"testing"
	"time"
)

// near reports whether got is want to three significant digits, which is what a
// histogram keeps.
func near(got, want int64) bool {
	return math.Abs(float64(got-want)) <= float64(want)/1000+1
}

func TestPercentilesOfKnownTimes(t *testing.T) {
	h := NewHistogram()
	for i := int64(1); i <= 100_000; i++ {
		h.Record(i)
	}
	p := h.Percentiles()
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"p50", p.P50, 50_000}, {"p90", p.P90, 90_000}, {"p99", p.P99, 99_000},
		{"p99.9", p.P999, 99_900}, {"p99.99", p.P9999, 99_990}, {"max", p.Max, 100_000},
	} {
		if !near(c.got, c.want) {
			t.Errorf("%s of 1 to 100,000 = %d, want about %d", c.name, c.got, c.want)
		}
	}
	if h.Count() != 100_000 {
		t.Errorf("count %d, want 100000", h.Count())
	}
}

func TestTimesOutOfRangeCountAsTheNearest(t *testing.T) {
	h := NewHistogram()
	h.Record(-5)
	h.Record(int64(2 * HighestLatency))
	if h.Count() != 2 {
		t.Errorf("count %d, want 2: nothing may be dropped", h.Count())
	}
	if p := h.Percentiles(); !near(p.Max, int64(HighestLatency)) || p.P50 > 1 {
		t.Errorf("p50 %d and max %d, want 1 and about %d", p.P50, p.Max, int64(HighestLatency))
	}
}

func TestNothingRecordedHasNoPercentiles(t *testing.T) {
	h := NewHistogram()
	h.Record(5)
	h.Reset()
	if p := h.Percentiles(); p != (Percentiles{}) {
		t.Errorf("percentiles of an empty histogram: %+v", p)
	}
}

func TestHistogramsTravelAsTextAndMerge(t *testing.T) {
	a, b := NewHistogram(), NewHistogram()
	for i := int64(1); i <= 1000; i++ {
		a.Record(i)
		b.Record(i + 1000)
	}
	text, err := a.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var got Histogram
	if err := got.UnmarshalText(text); err != nil {
		t.Fatal(err)
	}
	if got.Percentiles() != a.Percentiles() || got.Count() != a.Count() {
		t.Errorf("decoded %+v, want %+v", got.Percentiles(), a.Percentiles())
	}
	got.Merge(b)
	if p := got.Percentiles(); got.Count() != 2000 || !near(p.P50, 1000) || !near(p.Max, 2000) {
		t.Errorf("merged: count %d, %+v", got.Count(), p)
	}
	if err := got.UnmarshalText([]byte("no histogram")); err == nil {
		t.Error("decoded a text that is no histogram")
	}
}

func TestMedianPercentilesTakesTheHighestMaximum(t *testing.T) {
	got := MedianPercentiles([]Percentiles{
		{P50: 1, P90: 20, P99: 300, P999: 4, P9999: 5, Max: 6},
		{P50: 3, P90: 10, P99: 100, P999: 6, P9999: 9, Max: 60},
		{P50: 2, P90: 30, P99: 200, P999: 5, P9999: 7, Max: 600},
	})
	want := Percentiles{P50: 2, P90: 20, P99: 200, P999: 5, P9999: 7, Max: 600}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	h := NewHistogram()
	ns := int64(0)
	if n := testing.AllocsPerRun(1000, func() { ns += int64(time.Microsecond); h.Record(ns) }); n != 0 {
		t.Errorf("Record allocates %v times", n)
	}
}
