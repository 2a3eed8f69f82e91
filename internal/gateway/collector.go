package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

var _ prometheus.Collector = (*Ingress)(nil)

var numbers = append([]door.Number[Stats]{
	door.Gauge("connections", "Connections that are open.", func(s *Stats) float64 { return float64(s.Open) }),
	door.Counter("connections_total", "Connections that were accepted, the refused ones included.",
		func(s *Stats) float64 { return float64(s.Accepted) }),
	door.Counter("connections_refused_total", "Connections above the limit, closed at once.",
		func(s *Stats) float64 { return float64(s.Refused) }),
	door.Counter("frames_total", "Frames that were published.", func(s *Stats) float64 { return float64(s.Frames) }),
	door.Counter("payload_bytes_total", "Payload bytes that were published.",
		func(s *Stats) float64 { return float64(s.Bytes) }),
	door.Counter("received_bytes_total", "Bytes that were read from connections.",
		func(s *Stats) float64 { return float64(s.Received) }),
	door.Counter("reads_total", "System calls that read, those included that found nothing.", func(s *Stats) float64 { return float64(s.Reads) }),
	door.Counter("datagrams_total", "Datagrams that were received, those included that were too large.",
		func(s *Stats) float64 { return float64(s.Datagrams) }),
	door.Counter("dropped_datagrams_total", "Datagrams that the kernel dropped because the receive buffer was full.",
		func(s *Stats) float64 { return float64(s.Dropped) }),
	door.Counter("batches_total", "Publish calls.", func(s *Stats) float64 { return float64(s.Batches) }),
	door.Counter("publish_seconds_total", "Time spent in publishing, of all lanes together.",
		func(s *Stats) float64 { return s.Publishing.Seconds() }),
	door.Counter("backpressure_seconds_total", "Time spent in waiting for room in the topic (publish calls of more than 1 ms).", func(s *Stats) float64 { return s.Backpressure.Seconds() }),
	door.Gauge("buffers", "Read buffers.", func(s *Stats) float64 { return float64(s.Buffers) }),
	door.Gauge("buffers_in_use", "Read buffers that connections have borrowed.",
		func(s *Stats) float64 { return float64(s.BuffersInUse) }),
	door.Gauge("connections_waiting", "Connections with something to read that wait for a read buffer.",
		func(s *Stats) float64 { return float64(s.Waiting) }),
	door.Gauge("partial_held_bytes", "Memory that holds the beginnings of frames.",
		func(s *Stats) float64 { return float64(s.PartialHeld) }),
	door.Counter("partial_frames_total", "Frames that were begun and never finished.",
		func(s *Stats) float64 { return float64(s.PartialFrames) }),
	door.Counter("partial_bytes_total", "Bytes of frames that were begun and never finished.",
		func(s *Stats) float64 { return float64(s.PartialBytes) }),
	door.Counter("given_up_frames_total", "Whole frames that were read and not published.",
		func(s *Stats) float64 { return float64(s.GivenUp) }),
}, door.QueueNumbers(func(s *Stats) *door.Queue { return &s.Queue })...)

var families = []door.Family[Stats]{
	{Name: "errors_total", Help: "Connections that ended badly or were not taken on, and datagrams that were thrown away.", Label: "reason", Kind: prometheus.CounterValue,
		Of: func(s *Stats) map[string]float64 { return door.Floats(s.Errors) }},
}

var distributions = []door.Distribution[Stats]{
	{Name: "batch_frames", Help: "Frames that were published at once.", From: 0, To: 16, Unit: 1, Of: func(s *Stats) *door.Spread { return &s.BatchSizes }},
	{Name: "read_seconds", Help: "How long a read call took.", From: 10, To: 30, Unit: 1e-9, Of: func(s *Stats) *door.Spread { return &s.ReadTimes }},
	{Name: "batch_publish_seconds", Help: "How long a publish call took, waiting for room included.", From: 10, To: 34, Unit: 1e-9,
		Of: func(s *Stats) *door.Spread { return &s.PublishTimes }},
}

// figures are the ingress as Prometheus sees it.
func (in *Ingress) figures() *door.Figures[Stats] {
	kind := in.codec.Name()
	if in.cfg.packets() {
		kind = "datagram"
	}
	return &door.Figures[Stats]{
		Prefix: "hugebus_ingress_", Labels: prometheus.Labels{"listen": in.Addr().String(), "topic": in.cfg.Topic, "codec": kind},
		Stats: in.Stats, Numbers: numbers, Families: families, Distributions: distributions,
	}
}

// Describe sends the descriptions of all figures.
func (in *Ingress) Describe(to chan<- *prometheus.Desc) { in.figures().Describe(to) }

// Collect sends all figures as they are now.
func (in *Ingress) Collect(to chan<- prometheus.Metric) { in.figures().Collect(to) }
