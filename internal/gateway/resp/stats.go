package resp

import (
	"log/slog"
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

var _ prometheus.Collector = (*Server)(nil)

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

func peerAttr(c *conn) slog.Attr { return slog.String("peer", c.nc.RemoteAddr().String()) }

// Stats are the figures of a Server since it was made. They are read one after the other while it works.
type Stats struct {
	Open      int    // connections now
	Accepted  uint64 // connections in all, the refused ones included
	Commands  uint64
	Published uint64 // frames
	Read      uint64 // frames read from topics
	Delivered uint64 // messages times subscribers
	Missed    uint64 // bytes of positions that subscriptions missed
	Malformed uint64 // frames of the shared topic that do not begin with a channel

	Topics   int // that are read
	Channels int // with subscribers
	Patterns int

	Writes, Written uint64 // calls, bytes
	Waiting         int    // clients for which something waits
	Queued          int64  // bytes that wait for clients, counted for each
	BlockBytes      int64  // memory of the blocks that these refer to
	PartialBytes    int64  // memory with beginnings of commands

	Ends    map[string]uint64 // connections by why they ended or were not taken on
	Denials map[string]uint64 // of commands: auth, publish, subscribe, channels
}

// Stats returns the figures now.
func (s *Server) Stats() Stats {
	st := Stats{
		Open: s.limits.Open(), Accepted: s.accepted.Load(), Commands: s.commands.Load(), Published: s.published.Load(), Read: s.read.Load(),
		Delivered: s.delivered.Load(), Missed: s.missed.Load(), Malformed: s.malformed.Load(), Writes: s.shared.Writes.Load(), Written: s.shared.Bytes.Load(),
		Waiting: int(s.shared.Waiting.Load()), Queued: s.shared.Queued.Load(), BlockBytes: s.shared.Blocks.Live(),
		PartialBytes: s.rests.Load(), Ends: s.ends.all(), Denials: s.denials.all(),
	}
	s.hubMu.Lock()
	st.Topics = len(s.hubs)
	s.hubMu.Unlock()
	s.subs.mu.RLock()
	st.Channels, st.Patterns = len(s.subs.channels), len(s.subs.patterns)
	s.subs.mu.RUnlock()
	return st
}

// figure is one number of Stats as Prometheus sees it.
type figure struct {
	name, help string
	kind       prometheus.ValueType
	value      func(s *Stats) float64
}

var figures = []figure{
	{"connections", "Connections that are open.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Open) }},
	{"connections_total", "Connections that were accepted, the refused ones included.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Accepted) }},
	{"commands_total", "Commands.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Commands) }},
	{"published_frames_total", "Frames that were published.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Published) }},
	{"read_frames_total", "Frames read from topics.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Read) }},
	{"deliveries_total", "Messages times the subscribers that they were sent to.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Delivered) }},
	{"missed_bytes_total", "Bytes of positions that subscriptions missed.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Missed) }},
	{"malformed_frames_total", "Frames of the shared topic that do not begin with a channel.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Malformed) }},
	{"topics", "Topics that are read.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Topics) }},
	{"channels", "Channels with subscribers.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Channels) }},
	{"patterns", "Patterns with subscribers.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Patterns) }},
	{"writes_total", "Write calls.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Writes) }},
	{"written_bytes_total", "Bytes written.", prometheus.CounterValue, func(s *Stats) float64 { return float64(s.Written) }},
	{"clients_waiting", "Clients for which something waits.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Waiting) }},
	{"queued_bytes", "Bytes that wait for clients, counted for each.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.Queued) }},
	{"partial_bytes", "Memory with commands that have not come whole.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.PartialBytes) }},
	{"block_bytes", "Memory with encoded messages, shared by all clients.", prometheus.GaugeValue, func(s *Stats) float64 { return float64(s.BlockBytes) }},
}

func (s *Server) desc(name, help string, variable ...string) *prometheus.Desc {
	return prometheus.NewDesc("hugebus_resp_"+name, help, variable, prometheus.Labels{"listen": s.Addr().String(), "topic": s.cfg.Topic})
}

func (s *Server) endsDesc() *prometheus.Desc {
	return s.desc("ends_total", "Connections, by why they ended or were not taken on.", "reason")
}

func (s *Server) denialsDesc() *prometheus.Desc {
	return s.desc("denials_total", "Commands that were denied, by why.", "reason")
}

// Describe sends the descriptions of all figures.
func (s *Server) Describe(to chan<- *prometheus.Desc) {
	for _, f := range figures {
		to <- s.desc(f.name, f.help)
	}
	to <- s.endsDesc()
	to <- s.denialsDesc()
}

// Collect sends all figures as they are now.
func (s *Server) Collect(to chan<- prometheus.Metric) {
	st := s.Stats()
	for _, f := range figures {
		to <- prometheus.MustNewConstMetric(s.desc(f.name, f.help), f.kind, f.value(&st))
	}
	for why, n := range st.Ends {
		to <- prometheus.MustNewConstMetric(s.endsDesc(), prometheus.CounterValue, float64(n), why)
	}
	for why, n := range st.Denials {
		to <- prometheus.MustNewConstMetric(s.denialsDesc(), prometheus.CounterValue, float64(n), why)
	}
}
