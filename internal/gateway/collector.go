package gateway

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

var _ prometheus.Collector = (*Ingress)(nil)

// figure is one number of Stats as Prometheus sees it.
type figure struct {
	name, help string
	kind       prometheus.ValueType
	value      func(s *Stats) float64
}

var figures = []figure{
	{"connections", "Connections that are open.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Open) }},
	{"connections_total", "Connections that were accepted, the refused ones included.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.Accepted) }},
	{"connections_refused_total", "Connections above the limit, closed at once.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.Refused) }},
	{"frames_total", "Frames that were published.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Frames) }},
	{"payload_bytes_total", "Payload bytes that were published.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.Bytes) }},
	{"received_bytes_total", "Bytes that were read from connections.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.Received) }},
	{"reads_total", "Read calls.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Reads) }},
	{"datagrams_total", "Datagrams that were received, those included that were too large.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.Datagrams) }},
	{"dropped_datagrams_total", "Datagrams that the kernel dropped because the receive buffer was full.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.Dropped) }},
	{"publish_seconds_total", "Time spent in publishing, of all lanes together.", prometheus.CounterValue,
		func(s *Stats) float64 { return s.Publishing.Seconds() }},
	{"backpressure_seconds_total", "Time spent in waiting for room in the topic (publish calls of more than 1 ms).",
		prometheus.CounterValue, func(s *Stats) float64 { return s.Backpressure.Seconds() }},
	{"buffers", "Read buffers.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Buffers) }},
	{"buffers_in_use", "Read buffers that connections have borrowed.", prometheus.GaugeValue,
		func(s *Stats) float64 { return float64(s.BuffersInUse) }},
	{"connections_waiting", "Connections with something to read that wait for a read buffer.", prometheus.GaugeValue,
		func(s *Stats) float64 { return float64(s.Waiting) }},
	{"partial_held_bytes", "Memory that holds the beginnings of frames.", prometheus.GaugeValue,
		func(s *Stats) float64 { return float64(s.PartialHeld) }},
	{"partial_frames_total", "Frames that were begun and never finished.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.PartialFrames) }},
	{"partial_bytes_total", "Bytes of frames that were begun and never finished.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.PartialBytes) }},
	{"given_up_frames_total", "Whole frames that were read and not published.", prometheus.CounterValue,
		func(s *Stats) float64 { return float64(s.GivenUp) }},
}

const namespace = "hugebus_ingress_"

// labels returns the labels that all figures of this ingress have, so that one registry can hold several of them.
func (in *Ingress) labels() prometheus.Labels {
	return prometheus.Labels{"listen": in.Addr().String(), "topic": in.cfg.Topic, "codec": in.codecName()}
}

// codecName is what figures call the way in which frames come.
func (in *Ingress) codecName() string {
	if in.cfg.packets() {
		return "datagram"
	}
	return in.codec.Name()
}

func (in *Ingress) desc(name, help string, variable ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+name, help, variable, in.labels())
}

func (in *Ingress) errorsDesc() *prometheus.Desc {
	return in.desc("errors_total", "Connections that ended badly or were not taken on.", "reason")
}

func (in *Ingress) batchDesc() *prometheus.Desc {
	return in.desc("batch_frames", "Frames that were published at once.")
}

// Describe sends the descriptions of all figures.
func (in *Ingress) Describe(to chan<- *prometheus.Desc) {
	for _, f := range figures {
		to <- in.desc(f.name, f.help)
	}
	to <- in.errorsDesc()
	to <- in.batchDesc()
}

// Collect sends all figures as they are now.
func (in *Ingress) Collect(to chan<- prometheus.Metric) {
	s := in.Stats()
	for _, f := range figures {
		to <- prometheus.MustNewConstMetric(in.desc(f.name, f.help), f.kind, f.value(&s))
	}
	for why, n := range s.Errors {
		to <- prometheus.MustNewConstMetric(in.errorsDesc(), prometheus.CounterValue, float64(n), why)
	}
	buckets := make(map[float64]uint64, batchClasses)
	var sum uint64
	for i, n := range s.BatchSizes {
		sum += n
		if i < batchClasses-1 {
			buckets[math.Ldexp(1, i)] = sum
		}
	}
	to <- prometheus.MustNewConstHistogram(in.batchDesc(), sum, float64(s.Frames), buckets)
}
