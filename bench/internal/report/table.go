package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/hugebus/hugebus/shm"
)

// WriteTable writes results as a table for people. Columns that would be empty in every
// line are left out.
func WriteTable(w io.Writer, results []Result) error {
	cells := make([][]string, len(columns))
	used := make([]bool, len(columns))
	for i, c := range columns {
		for _, r := range results {
			text := c.cell(r)
			cells[i] = append(cells[i], text)
			used[i] = used[i] || text != ""
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(text func(i int) string) {
		for i := range columns {
			if used[i] {
				fmt.Fprint(t, text(i), "\t")
			}
		}
		fmt.Fprintln(t)
	}
	line(func(i int) string { return columns[i].name })
	for n := range results {
		line(func(i int) string { return cells[i][n] })
	}
	return t.Flush()
}

type column struct {
	name string
	cell func(Result) string
}

var columns = []column{
	{"scenario", func(r Result) string { return r.Scenario }},
	{"system", func(r Result) string { return r.System }},
	{"variant", func(r Result) string { return r.Variant }},
	{"payload", func(r Result) string { return size(r.PayloadBytes) }},
	{"from", func(r Result) string { return whole(r.Publishers) }},
	{"to", func(r Result) string { return whole(r.Subscribers) }},
	{"batch", func(r Result) string { return whole(r.Batch) }},
	{"target/s", func(r Result) string { return Quantity(r.TargetPerSecond) }},
	{"p50", func(r Result) string { return Duration(r.P50) }},
	{"p90", func(r Result) string { return Duration(r.P90) }},
	{"p99", func(r Result) string { return Duration(r.P99) }},
	{"p99.9", func(r Result) string { return Duration(r.P999) }},
	{"p99.99", func(r Result) string { return Duration(r.P9999) }},
	{"max", func(r Result) string { return Duration(r.Max) }},
	{"frames/s", func(r Result) string { return Quantity(r.FramesPerSecond) }},
	{"bytes/s", func(r Result) string { return Quantity(r.BytesPerSecond) }},
	{"of raw", func(r Result) string { return factor(r.RawShare) }},
	{"calls/frame", func(r Result) string { return factor(r.CallsPerFrame) }},
	{"memory/conn", func(r Result) string { return bytesEach(r.ConnBytes) }},
	{"frames/poll", func(r Result) string { return Quantity(r.FramesPerPoll) }},
	{"CPU", func(r Result) string { return share(r.CPU) }},
	{"broker CPU", func(r Result) string { return share(r.BrokerCPU) }},
	{"threads", func(r Result) string { return whole(r.Threads) }},
	{"sleeps", func(r Result) string { return whole(int(r.Sleeps)) }},
	{"missed", func(r Result) string { return counted(r.MissedWakeups) }},
	{"GCs", func(r Result) string { return counted(r.GCCycles) }},
	{"GC pause", func(r Result) string { return Duration(r.GCPause) }},
	{"page faults", func(r Result) string { return counted(r.PageFaults) }},
	{"dTLB misses", func(r Result) string { return counted(r.TLBMisses) }},
	{"", func(r Result) string { return map[bool]string{true: "behind"}[r.Behind] }},
	{"raw p50", func(r Result) string { return Duration(r.RawRTT) }},
	{"p50/raw", ratio},
	{"spread", func(r Result) string { return fmt.Sprintf("%.0f%%", r.Spread*100) }},
}

// ratio is how many raw round trips a round trip takes, where it is one.
func ratio(r Result) string {
	if r.P50 == 0 || r.RawRTT == 0 || !slices.Contains([]string{"latency", "gc", "raw-rtt"}, r.Scenario) {
		return ""
	}
	return fmt.Sprintf("%.2f", float64(r.P50)/float64(r.RawRTT))
}

func share(s *Share) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%.2f%%", 100*float64(*s))
}

func bytesEach(n int64) string {
	if n == 0 {
		return ""
	}
	return Quantity(float64(n)) + "B"
}

// factor writes a ratio with three digits; 0 is empty.
func factor(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g", v)
}

// counted is a count that may be 0, or not there.
func counted(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

func whole(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func size(n int) string {
	if n == 0 {
		return ""
	}
	return shm.FormatSize(int64(n))
}

// Duration writes ns with three digits and a unit; 0 is empty.
func Duration(ns int64) string {
	switch {
	case ns == 0:
		return ""
	case ns < 1000:
		return fmt.Sprintf("%d ns", ns)
	case ns < 1e6:
		return digits(float64(ns)/1e3) + " µs"
	case ns < 1e9:
		return digits(float64(ns)/1e6) + " ms"
	}
	return digits(float64(ns)/1e9) + " s"
}

// Quantity writes v with three digits and a decimal prefix (k, M, G, T); 0 is empty.
func Quantity(v float64) string {
	if v == 0 {
		return ""
	}
	prefixes := []string{"", " k", " M", " G", " T"}
	i := 0
	for v >= 999.5 && i < len(prefixes)-1 {
		v /= 1000
		i++
	}
	return digits(v) + prefixes[i]
}

// digits writes v with three digits, or all before the point.
func digits(v float64) string {
	switch {
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
