package report

import (
	"encoding/json"
	"io"
)

// A Result is one line of a report: one workload over one system. What does not apply
// is 0 or empty, and left out of the JSON.
type Result struct {
	// Scenario is what was measured: latency, throughput, raw-rtt, raw-transfer.
	Scenario string `json:"scenario"`
	// System is what carried the data: hugebus, or raw for the bare machine.
	System string `json:"system"`
	// Variant says how, where a system has several ways.
	Variant string `json:"variant,omitempty"`
	// PayloadBytes is the size of one payload, without any header.
	PayloadBytes int `json:"payload_bytes,omitempty"`
	// Batch is how many frames one call publishes; 1: a call for each.
	Batch int `json:"batch,omitempty"`
	// Rounds is how many rounds the figures are medians of.
	Rounds int `json:"rounds"`

	Percentiles

	// FramesPerSecond and BytesPerSecond count payloads that arrived and were checked.
	FramesPerSecond float64 `json:"frames_per_s,omitempty"`
	BytesPerSecond  float64 `json:"bytes_per_s,omitempty"`
	// RawRTT is the median round trip of a bare cache line between the same cores in the
	// same run, in ns: the machine's own limit.
	RawRTT int64 `json:"raw_rtt_p50_ns,omitempty"`

	// FramesPerPoll is how many frames a poll of the reader found, of those that found some.
	FramesPerPoll float64 `json:"frames_per_poll,omitempty"`
	// Publishers and Subscribers are how many processes publish and read, where that is not one each.
	Publishers  int `json:"publishers,omitempty"`
	Subscribers int `json:"subscribers,omitempty"`
	// TargetPerSecond is the rate of an open loop, in frames per second; Behind says that the
	// system could not keep up with it: then times only say how far behind it fell.
	TargetPerSecond float64 `json:"target_per_s,omitempty"`
	Behind          bool    `json:"behind,omitempty"`
	// CPU is the processor time used, as a share of one core, and Threads how many threads that
	// took; of a process that waits, or both sides of a stream.
	CPU     *Share `json:"cpu,omitempty"`
	Threads int    `json:"threads,omitempty"`
	// BrokerCPU is what the broker used meanwhile.
	BrokerCPU *Share `json:"broker_cpu,omitempty"`
	// Sleeps is how often somebody slept, MissedWakeups how often there was something to read
	// when a bounded sleep ran out.
	Sleeps        int64  `json:"sleeps,omitempty"`
	MissedWakeups *int64 `json:"missed_wakeups,omitempty"`
	// GCCycles counts garbage collections, GCPause is how long one stopped the program on average, in ns.
	GCCycles *int64 `json:"gc_cycles,omitempty"`
	GCPause  int64  `json:"gc_pause_ns,omitempty"`
	// PageFaults counts those of both processes while the clock ran; TLBMisses those loads whose
	// page the processor had to look up. nil: not counted here.
	PageFaults *int64 `json:"page_faults,omitempty"`
	TLBMisses  *int64 `json:"dtlb_misses,omitempty"`
	// ConnBytes is the gateway's own memory for each connection, in bytes; CallsPerFrame how many calls of read or write it
	// made for each frame; RawShare its rate as a share of the bare loop's.
	ConnBytes     int64   `json:"conn_bytes,omitempty"`
	CallsPerFrame float64 `json:"calls_per_frame,omitempty"`
	RawShare      float64 `json:"raw_share,omitempty"`
	// Histogram holds all times of all rounds, for results that have some.
	Histogram *Histogram `json:"-"`
	// Frames is how many arrived and were checked, in all rounds.
	Frames int64 `json:"frames,omitempty"`
	// Spread is how far the rounds' p50 or frames per second lie apart, as a share of
	// the median.
	Spread float64 `json:"spread"`
	// Settings are what the figures depend on besides.
	Settings *Settings `json:"settings,omitempty"`
}

// A Share is a part of one core: 1 is all of it.
type Share float64

// Settings are the conditions of a measurement.
type Settings struct {
	Cores    string `json:"cores,omitempty"`
	Mode     string `json:"mode,omitempty"`
	Claim    bool   `json:"claim,omitempty"`
	Wait     string `json:"wait,omitempty"`
	Capacity int64  `json:"capacity_bytes,omitempty"`
	Pages    string `json:"pages,omitempty"`
	// ClockNanoseconds is what one reading of the clock costs; each time holds about one.
	ClockNanoseconds float64 `json:"clock_ns,omitempty"`
}

// Latency joins the rounds of one latency workload into r.
func (r *Result) Latency(rounds []*Histogram) {
	each := make([]Percentiles, len(rounds))
	medians := make([]int64, len(rounds))
	r.Frames, r.Histogram = 0, NewHistogram()
	for i, h := range rounds {
		r.Histogram.Merge(h)
		each[i] = h.Percentiles()
		medians[i] = each[i].P50
		r.Frames += h.Count()
	}
	r.Rounds, r.Percentiles, r.Spread = len(rounds), MedianPercentiles(each), Spread(medians)
}

// A Rate is how one round of a throughput workload went.
type Rate struct {
	Frames int64 `json:"frames"`
	// Nanoseconds is the time from the first frame to the last, at the reader.
	Nanoseconds int64 `json:"ns"`
}

// PerSecond is the rate in frames per second; 0 for no time.
func (r Rate) PerSecond() float64 {
	if r.Nanoseconds <= 0 {
		return 0
	}
	return float64(r.Frames) * 1e9 / float64(r.Nanoseconds)
}

// Throughput joins the rounds of one throughput workload into r, whose PayloadBytes is
// set.
func (r *Result) Throughput(rounds []Rate) {
	rates := make([]float64, len(rounds))
	r.Frames = 0
	for i, round := range rounds {
		rates[i] = round.PerSecond()
		r.Frames += round.Frames
	}
	r.Rounds, r.FramesPerSecond, r.Spread = len(rounds), Median(rates), Spread(rates)
	r.BytesPerSecond = r.FramesPerSecond * float64(r.PayloadBytes)
}

// WriteJSON writes results as one array.
func WriteJSON(w io.Writer, results []Result) error {
	if results == nil {
		results = []Result{}
	}
	return Encode(w, results)
}

// Encode writes any result as indented JSON.
func Encode(w io.Writer, result any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(result)
}
