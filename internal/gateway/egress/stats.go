package egress

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

var _ prometheus.Collector = (*Egress)(nil)

// Stats are the figures of an Egress since it was made. They are read one after the other while it works.
type Stats struct {
	Open     int    // connections now
	Accepted uint64 // connections in all, the refused ones included

	Read       uint64 // frames read from the topic
	Delivered  uint64 // frames times the clients that they were written to or queued for; SkippedFrames of them were given up
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

	BatchSizes door.Spread // frames of each batch, of each writer
	SendTimes  door.Spread // nanoseconds in which a writer has sent a batch to all of its clients

	Queue door.Queue // connections that wait to be accepted

	Ends map[string]uint64 // connections by why they ended or were not taken on
}

// Stats returns the figures now.
func (e *Egress) Stats() Stats {
	s := Stats{
		Open: e.limits.Open(), Accepted: e.accepted.Load(), Read: e.read1.Load(), Missed: e.missed.Load(), Unsendable: e.unsendable.Load(),
		Writes: e.shared.Writes.Load(), Written: e.shared.Bytes.Load(), Waiting: int(e.shared.Waiting.Load()),
		Queued: e.shared.Queued.Load(), BlockBytes: e.shared.Blocks.Live(), Skips: e.shared.Skips.Load(),
		SkippedFrames: e.shared.SkippedFrames.Load(), SkippedBytes: e.shared.SkippedBytes.Load(), Unsent: e.unsentBytes.Load(), Ends: e.ends.All(),
		Queue: door.QueueOf(e.listener),
	}
	for _, w := range e.writers {
		s.Delivered += w.frames.Load()
		s.Batches += w.batches.Load()
		s.BatchSizes.Take(&w.roundFrames)
		s.SendTimes.Take(&w.roundTimes)
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

// SlowNote names the clients that are slow, in at most limit bytes of printable characters: those for which more than a quarter of Config.MaxLag waits, and
// those that were skipped. It is empty if there are none.
func (e *Egress) SlowNote(limit int) string {
	note, more := "", 0
	for _, c := range e.Slowest(math.MaxInt) {
		if c.Lag <= e.cfg.MaxLag/4 && c.Skips == 0 {
			continue
		}
		one := fmt.Sprintf("%s (%d bytes behind, skipped %d times)", c.Peer, c.Lag, c.Skips)
		switch {
		case note == "":
			note = "slow: " + one
		case len(note)+len(one) < limit-roomForMore:
			note += ", " + one
		default:
			more++
		}
	}
	if more > 0 {
		note += fmt.Sprintf(", and %d more", more)
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, note[:min(len(note), limit)])
}

const roomForMore = 32 // bytes of ", and N more"

// namedSlow is how many slow clients the figures name: labels of unbounded number are a burden to who collects them.
const namedSlow = 10

var numbers = append([]door.Number[Stats]{
	door.Gauge("connections", "Connections that are open.", func(s *Stats) float64 { return float64(s.Open) }),
	door.Counter("connections_total", "Connections that were accepted, the refused ones included.", func(s *Stats) float64 { return float64(s.Accepted) }),
	door.Counter("read_frames_total", "Frames read from the topic.", func(s *Stats) float64 { return float64(s.Read) }),
	door.Counter("deliveries_total", "Frames times the clients that they were written to or queued for. What was given up is in skipped_frames_total.", func(s *Stats) float64 { return float64(s.Delivered) }),
	door.Counter("batches_total", "Batches times the clients that they were sent to.", func(s *Stats) float64 { return float64(s.Batches) }),
	door.Counter("missed_bytes_total", "Bytes of positions that the subscription missed.", func(s *Stats) float64 { return float64(s.Missed) }),
	door.Counter("unsendable_frames_total", "Frames that the codec cannot carry.", func(s *Stats) float64 { return float64(s.Unsendable) }),
	door.Counter("writes_total", "Write calls.", func(s *Stats) float64 { return float64(s.Writes) }),
	door.Counter("written_bytes_total", "Bytes written.", func(s *Stats) float64 { return float64(s.Written) }),
	door.Gauge("clients_waiting", "Clients for which something waits.", func(s *Stats) float64 { return float64(s.Waiting) }),
	door.Gauge("queued_bytes", "Bytes that wait for clients, counted for each.", func(s *Stats) float64 { return float64(s.Queued) }),
	door.Gauge("block_bytes", "Memory with encoded frames, shared by all clients.", func(s *Stats) float64 { return float64(s.BlockBytes) }),
	door.Counter("skips_total", "Times that a slow client was skipped forward.", func(s *Stats) float64 { return float64(s.Skips) }),
	door.Counter("skipped_frames_total", "Frames that slow clients were not sent.", func(s *Stats) float64 { return float64(s.SkippedFrames) }),
	door.Counter("skipped_bytes_total", "Bytes that slow clients were not sent.", func(s *Stats) float64 { return float64(s.SkippedBytes) }),
	door.Counter("unsent_bytes_total", "Bytes that waited for clients when these went.", func(s *Stats) float64 { return float64(s.Unsent) }),
}, door.QueueNumbers(func(s *Stats) *door.Queue { return &s.Queue })...)

var distributions = []door.Distribution[Stats]{
	{Name: "batch_frames", Help: "Frames that a writer sent to its clients at once.", To: 16, Unit: 1, Of: func(s *Stats) *door.Spread { return &s.BatchSizes }},
	{Name: "batch_send_seconds", Help: "How long a writer took to send a batch to all of its clients.", From: 10, To: 34, Unit: 1e-9,
		Of: func(s *Stats) *door.Spread { return &s.SendTimes }},
}

// figures are the egress as Prometheus sees it.
func (e *Egress) figures() *door.Figures[Stats] {
	return &door.Figures[Stats]{
		Prefix: "hugebus_egress_", Labels: prometheus.Labels{"listen": e.Addr().String(), "topic": e.cfg.Topic, "codec": e.codec.Name()},
		Stats: e.Stats, Numbers: numbers, Families: []door.Family[Stats]{
			{Name: "ends_total", Help: "Connections, by why they ended or were not taken on.", Label: "reason", Kind: prometheus.CounterValue,
				Of: func(s *Stats) map[string]float64 { return door.Floats(s.Ends) }},
			{Name: "slow_client_lag_bytes", Help: "Bytes that wait for the clients that are furthest behind.", Label: "peer", Kind: prometheus.GaugeValue,
				Of: func(*Stats) map[string]float64 { return e.lags() }},
		}, Distributions: distributions,
	}
}

// lags are the clients that are furthest behind. Those of a Unix socket have one name, which stands for the slowest.
func (e *Egress) lags() map[string]float64 {
	lags := make(map[string]float64)
	for _, c := range e.Slowest(namedSlow) {
		lags[c.Peer] = max(lags[c.Peer], float64(c.Lag))
	}
	return lags
}

// Describe sends the descriptions of all figures.
func (e *Egress) Describe(to chan<- *prometheus.Desc) { e.figures().Describe(to) }

// Collect sends all figures as they are now.
func (e *Egress) Collect(to chan<- prometheus.Metric) { e.figures().Collect(to) }
