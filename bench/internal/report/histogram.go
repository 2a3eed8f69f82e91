package report

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// HighestLatency is the longest time that a Histogram tells apart from longer ones,
// which it counts as this.
const HighestLatency = time.Minute

// A Histogram collects times with three significant digits, from 1 ns to
// HighestLatency. It is for one goroutine. Record allocates nothing.
//
// See http://hdrhistogram.org for the idea and the encoding.
type Histogram struct {
	h *hdrhistogram.Histogram
}

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{h: hdrhistogram.New(1, int64(HighestLatency), 3)}
}

// Record adds one time, in ns.
func (h *Histogram) Record(ns int64) {
	// It can only fail for what is out of range, which this makes impossible.
	_ = h.h.RecordValue(min(max(ns, 1), int64(HighestLatency)))
}

// Count is how many times were recorded.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Reset forgets everything.
func (h *Histogram) Reset() { h.h.Reset() }

// Merge adds what another histogram holds.
func (h *Histogram) Merge(other *Histogram) { h.h.Merge(other.h) }

// MarshalText is the standard compressed form (V2, base64) of HDR histograms.
func (h *Histogram) MarshalText() ([]byte, error) {
	text, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("report: encode histogram: %w", err)
	}
	return text, nil
}

// UnmarshalText reads what MarshalText wrote.
func (h *Histogram) UnmarshalText(text []byte) error {
	decoded, err := hdrhistogram.Decode(text)
	if err != nil {
		return fmt.Errorf("report: decode histogram: %w", err)
	}
	h.h = decoded
	return nil
}

// Percentiles are the quantiles that a result shows, in ns.
type Percentiles struct {
	P50   int64 `json:"p50_ns,omitempty"`
	P90   int64 `json:"p90_ns,omitempty"`
	P99   int64 `json:"p99_ns,omitempty"`
	P999  int64 `json:"p999_ns,omitempty"`
	P9999 int64 `json:"p9999_ns,omitempty"`
	Max   int64 `json:"max_ns,omitempty"`
}

// Percentiles reads the quantiles off; all 0 when nothing was recorded.
func (h *Histogram) Percentiles() Percentiles {
	if h.Count() == 0 {
		return Percentiles{}
	}
	at := h.h.ValueAtQuantile
	return Percentiles{
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99), Max: h.h.Max(),
	}
}

// MedianPercentiles joins rounds: the median of each quantile, and the highest maximum.
func MedianPercentiles(rounds []Percentiles) Percentiles {
	pick := func(field func(Percentiles) int64) int64 {
		values := make([]int64, len(rounds))
		for i, r := range rounds {
			values[i] = field(r)
		}
		return Median(values)
	}
	joined := Percentiles{
		P50:   pick(func(p Percentiles) int64 { return p.P50 }),
		P90:   pick(func(p Percentiles) int64 { return p.P90 }),
		P99:   pick(func(p Percentiles) int64 { return p.P99 }),
		P999:  pick(func(p Percentiles) int64 { return p.P999 }),
		P9999: pick(func(p Percentiles) int64 { return p.P9999 }),
	}
	for _, r := range rounds {
		joined.Max = max(joined.Max, r.Max)
	}
	return joined
}
