package resp

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

var _ prometheus.Collector = (*Server)(nil)

func peerAttr(c *conn) slog.Attr { return slog.String("peer", c.nc.RemoteAddr().String()) }

// Stats are the figures of a Server since it was made. They are read one after the other while it works.
type Stats struct {
	Open      int    // connections now
	Accepted  uint64 // connections in all, the refused ones included
	Commands  uint64
	Published uint64 // frames
	GivenUp   uint64 // frames that were read and could not be published: who sent them was told so, if it was still there
	Outlets   int    // topics to which is published
	GivenBack uint64 // of these, to make room for others
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

	Backpressure time.Duration // in publish calls of more than 1 ms, which is waiting for room
	BatchSizes   door.Spread   // frames of each publish call
	PublishTimes door.Spread   // nanoseconds of each
	Queue        door.Queue    // connections that wait to be accepted

	Ends    map[string]uint64 // connections by why they ended or were not taken on
	Denials map[string]uint64 // of commands: auth, publish, subscribe, channels, topics
}

// Stats returns the figures now.
func (s *Server) Stats() Stats {
	st := Stats{
		Open: s.limits.Open(), Accepted: s.accepted.Load(), Commands: s.commands.Load(), Published: s.published.Load(), Read: s.read.Load(),
		Delivered: s.delivered.Load(), Missed: s.missed.Load(), Malformed: s.malformed.Load(), Writes: s.shared.Writes.Load(), Written: s.shared.Bytes.Load(),
		Waiting: int(s.shared.Waiting.Load()), Queued: s.shared.Queued.Load(), BlockBytes: s.shared.Blocks.Live(),
		PartialBytes: s.rests.Load(), Ends: s.ends.All(), Denials: s.denials.All(),
	}
	st.GivenUp, st.GivenBack, st.Backpressure = s.givenUp.Load(), s.givenBack.Load(), time.Duration(s.backpressure.Load())
	st.BatchSizes.Take(&s.batchFrames)
	st.PublishTimes.Take(&s.publishTimes)
	st.Queue = door.QueueOf(s.listener)
	s.outletMu.Lock()
	st.Outlets = len(s.outlets)
	s.outletMu.Unlock()
	s.hubMu.Lock()
	st.Topics = len(s.hubs)
	s.hubMu.Unlock()
	s.subs.mu.RLock()
	st.Channels, st.Patterns = len(s.subs.channels), len(s.subs.patterns)
	s.subs.mu.RUnlock()
	return st
}

var numbers = append([]door.Number[Stats]{
	door.Gauge("connections", "Connections that are open.", func(s *Stats) float64 { return float64(s.Open) }),
	door.Counter("connections_total", "Connections that were accepted, the refused ones included.", func(s *Stats) float64 { return float64(s.Accepted) }),
	door.Counter("commands_total", "Commands.", func(s *Stats) float64 { return float64(s.Commands) }),
	door.Counter("published_frames_total", "Frames that were published.", func(s *Stats) float64 { return float64(s.Published) }),
	door.Counter("read_frames_total", "Frames read from topics.", func(s *Stats) float64 { return float64(s.Read) }),
	door.Counter("deliveries_total", "Messages times the subscribers that they were sent to.", func(s *Stats) float64 { return float64(s.Delivered) }),
	door.Counter("missed_bytes_total", "Bytes of positions that subscriptions missed.", func(s *Stats) float64 { return float64(s.Missed) }),
	door.Counter("malformed_frames_total", "Frames of the shared topic that do not begin with a channel.", func(s *Stats) float64 { return float64(s.Malformed) }),
	door.Gauge("topics", "Topics that are read.", func(s *Stats) float64 { return float64(s.Topics) }),
	door.Gauge("channels", "Channels with subscribers.", func(s *Stats) float64 { return float64(s.Channels) }),
	door.Gauge("patterns", "Patterns with subscribers.", func(s *Stats) float64 { return float64(s.Patterns) }),
	door.Counter("writes_total", "Write calls.", func(s *Stats) float64 { return float64(s.Writes) }),
	door.Counter("written_bytes_total", "Bytes written.", func(s *Stats) float64 { return float64(s.Written) }),
	door.Gauge("clients_waiting", "Clients for which something waits.", func(s *Stats) float64 { return float64(s.Waiting) }),
	door.Gauge("queued_bytes", "Bytes that wait for clients, counted for each.", func(s *Stats) float64 { return float64(s.Queued) }),
	door.Gauge("partial_bytes", "Memory with commands that have not come whole.", func(s *Stats) float64 { return float64(s.PartialBytes) }),
	door.Gauge("block_bytes", "Memory with encoded messages, shared by all clients.", func(s *Stats) float64 { return float64(s.BlockBytes) }),
	door.Counter("given_up_frames_total", "Frames that were read and could not be published.", func(s *Stats) float64 { return float64(s.GivenUp) }),
	door.Counter("backpressure_seconds_total", "Time spent in waiting for room in topics (publish calls of more than 1 ms).", func(s *Stats) float64 { return s.Backpressure.Seconds() }),
	door.Gauge("publisher_topics", "Topics to which is published.", func(s *Stats) float64 { return float64(s.Outlets) }),
	door.Counter("publisher_topics_given_back_total", "Topics whose publisher was given back to make room for another (--max-topics).", func(s *Stats) float64 { return float64(s.GivenBack) }),
}, door.QueueNumbers(func(s *Stats) *door.Queue { return &s.Queue })...)

var distributions = []door.Distribution[Stats]{
	{Name: "batch_frames", Help: "Frames that were published at once.", To: 10, Unit: 1, Of: func(s *Stats) *door.Spread { return &s.BatchSizes }},
	{Name: "publish_seconds", Help: "How long a publish call took.", From: 7, To: 34, Unit: 1e-9, Of: func(s *Stats) *door.Spread { return &s.PublishTimes }},
}

// figures are the server as Prometheus sees it.
func (s *Server) figures() *door.Figures[Stats] {
	return &door.Figures[Stats]{
		Prefix: "hugebus_resp_", Labels: prometheus.Labels{"listen": s.Addr().String(), "topic": s.cfg.Topic}, Stats: s.Stats, Numbers: numbers,
		Families: []door.Family[Stats]{
			{Name: "ends_total", Help: "Connections, by why they ended or were not taken on.", Label: "reason", Kind: prometheus.CounterValue,
				Of: func(st *Stats) map[string]float64 { return door.Floats(st.Ends) }},
			{Name: "denials_total", Help: "Commands that were denied, by why.", Label: "reason", Kind: prometheus.CounterValue,
				Of: func(st *Stats) map[string]float64 { return door.Floats(st.Denials) }},
		}, Distributions: distributions,
	}
}

// Describe sends the descriptions of all figures.
func (s *Server) Describe(to chan<- *prometheus.Desc) { s.figures().Describe(to) }

// Collect sends all figures as they are now.
func (s *Server) Collect(to chan<- prometheus.Metric) { s.figures().Collect(to) }
