package egress

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

var _ prometheus.Collector = (*Egress)(nil)

// counters count by name. The zero value is ready.
type counters struct {
	mu sync.Mutex
	by map[string]uint64
}

func (c *counters) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = make(map[string]uint64)
	}
	c.by[name]++
}

func (c *counters) all() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.by)
}

// Stats are the figures of an Egress since it was made. They are read one after the other while it works.
type Stats struct {
	Open     int    // connections now
	Accepted uint64 // connections in all, the refused ones included

	Read       uint64 // frames read from the topic
	Delivered  uint64 // frames times the clients that they were written to or queued for
	Batches    uint64 // batches times clients
	Missed     uint64 // bytes of positions that the subscription missed
	Unsendable uint64 // frames that the codec cannot carry

	Writes  uint64 // system calls
	Written uint64 // bytes

	Waiting       int    // clients for which something waits
	Queued        int64  // bytes that wait for clients, counted for each
	BlockBytes    int64  // memory of the blocks that these, and writers, refer to
	Skips         uint64 // times that a client was skipped forward
	SkippedFrames uint64
	SkippedBytes  uint64
	Unsent        uint64 // bytes that waited for clients when they went or the egress stopped

	Ends map[string]uint64 // connections by why they ended or were not taken on
}

// Stats returns the figures now.
func (e *Egress) Stats() Stats {
	s := Stats{
		Open: e.limits.Open(), Accepted: e.accepted.Load(), Read: e.read1.Load(), Missed: e.missed.Load(), Unsendable: e.unsendable.Load(),
		Writes: e.shared.Writes.Load(), Written: e.shared.Bytes.Load(), Waiting: int(e.shared.Waiting.Load()),
		Queued: e.shared.Queued.Load(), BlockBytes: e.shared.Blocks.Live(), Skips: e.shared.Skips.Load(),
		SkippedFrames: e.shared.SkippedFrames.Load(), SkippedBytes: e.shared.SkippedBytes.Load(), Unsent: e.unsentBytes.Load(), Ends: e.ends.all(),
	}
	for _, w := range e.writers {
		s.Delivered += w.frames.Load()
		s.Batches += w.batches.Load()
	}
	return s
}

// SlowClient is a client for which something waits, or which was skipped.
type SlowClient struct {
	Peer  string
	Lag   int    // bytes that wait
	Skips uint64 // times that it was skipped forward
}

// Slowest returns up to n clients that are behind, the furthest first.
func (e *Egress) Slowest(n int) []SlowClient {
	var slow []SlowClient
	e.mu.Lock()
	for c := range e.clients {
		if out := c.out.Load(); out != nil {
			if lag, skips := out.Lag(); lag > 0 || skips > 0 {
				slow = append(slow, SlowClient{peerName(c.conn), lag, skips})
			}
		}
	}
	e.mu.Unlock()
	slices.SortFunc(slow, func(a, b SlowClient) int {
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), cmp.Compare(b.Skips, a.Skips), cmp.Compare(a.Peer, b.Peer))
	})
	return slow[:min(n, len(slow))]
}

// namedSlow is how many slow clients the figures name: labels of unbounded number are a burden to who collects them.
const namedSlow = 10

// figure is one number of Stats as Prometheus sees it.
type figure struct {
	name, help string
	kind       prometheus.ValueType
	value      func(s *Stats) float64
}

var figures = []figure{
	{"connections", "Connections that are open.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Open) }},
	{"connections_total", "Connections that were accepted, the refused ones included.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Accepted) }},
	{"read_frames_total", "Frames read from the topic.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Read) }},
	{"deliveries_total", "Frames times the clients that they were sent to.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Delivered) }},
	{"batches_total", "Batches times the clients that they were sent to.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Batches) }},
	{"missed_bytes_total", "Bytes of positions that the subscription missed.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Missed) }},
	{"unsendable_frames_total", "Frames that the codec cannot carry.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Unsendable) }},
	{"writes_total", "Write calls.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Writes) }},
	{"written_bytes_total", "Bytes written.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Written) }},
	{"clients_waiting", "Clients for which something waits.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Waiting) }},
	{"queued_bytes", "Bytes that wait for clients, counted for each.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Queued) }},
	{"block_bytes", "Memory with encoded frames, shared by all clients.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.BlockBytes) }},
	{"skips_total", "Times that a slow client was skipped forward.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Skips) }},
	{"skipped_frames_total", "Frames that slow clients were not sent.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.SkippedFrames) }},
	{"skipped_bytes_total", "Bytes that slow clients were not sent.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.SkippedBytes) }},
	{"unsent_bytes_total", "Bytes that waited for clients when these went.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Unsent) }},
}

func (e *Egress) desc(name, help string, variable ...string) *prometheus.Desc {
	return prometheus.NewDesc("hugebus_egress_"+name, help, variable,
		prometheus.Labels{"listen": e.Addr().String(), "topic": e.cfg.Topic, "codec": e.codec.Name()})
}

func (e *Egress) endsDesc() *prometheus.Desc {
	return e.desc("ends_total", "Connections, by why they ended or were not taken on.", "reason")
}

func (e *Egress) lagDesc() *prometheus.Desc {
	return e.desc("slow_client_lag_bytes", "Bytes that wait for the clients that are furthest behind.", "peer")
}

// Describe sends the descriptions of all figures.
func (e *Egress) Describe(to chan<- *prometheus.Desc) {
	for _, f := range figures {
		to <- e.desc(f.name, f.help)
	}
	to <- e.endsDesc()
	to <- e.lagDesc()
}

// Collect sends all figures as they are now.
func (e *Egress) Collect(to chan<- prometheus.Metric) {
	s := e.Stats()
	for _, f := range figures {
		to <- prometheus.MustNewConstMetric(e.desc(f.name, f.help), f.kind, f.value(&s))
	}
	for why, n := range s.Ends {
		to <- prometheus.MustNewConstMetric(e.endsDesc(), prometheus.CounterValue, float64(n), why)
	}
	seen := make(map[string]bool) // clients of a Unix socket have one name
	for _, c := range e.Slowest(namedSlow) {
		if !seen[c.Peer] {
			seen[c.Peer] = true
			to <- prometheus.MustNewConstMetric(e.lagDesc(), prometheus.GaugeValue, float64(c.Lag), c.Peer)
		}
	}
}
