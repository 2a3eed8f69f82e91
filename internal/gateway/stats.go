package gateway

import (
	"net"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

// Stats are the figures of an Ingress since it was made. They are read one after the other while it works, so sums may
// be off by what happened meanwhile; after Serve has returned they are exact.
type Stats struct {
	Open     int    // connections now
	Accepted uint64 // connections in all, the refused ones included
	Refused  uint64 // connections above Config.MaxConns, closed at once

	Frames   uint64 // published
	Bytes    uint64 // of payload, published
	Batches  uint64 // PublishBatch calls
	Reads    uint64 // read calls, those included that found nothing
	Received uint64 // bytes read

	Datagrams uint64 // received, those included that were too large
	Dropped   uint64 // datagrams that the kernel dropped, because the receive buffer was full

	BatchSizes   door.Spread // frames of each PublishBatch call
	ReadTimes    door.Spread // nanoseconds of each read call; datagrams, where a call waits too, have none
	PublishTimes door.Spread // nanoseconds of each PublishBatch call, waiting for room included

	Queue door.Queue // connections that wait to be accepted

	Publishing   time.Duration // time in PublishBatch, of all lanes together
	Backpressure time.Duration // the part of it in calls of more than 1 ms, which is waiting for room, not work

	BuffersInUse int // read buffers that connections have borrowed now; none when all are idle
	Buffers      int // read buffers in all
	Waiting      int // connections with something to read that wait for a buffer

	PartialHeld   int64  // bytes of memory that hold the beginnings of frames now
	PartialFrames uint64 // frames that were begun and never finished
	PartialBytes  uint64 // bytes of these
	StopPartial   uint64 // the part of PartialBytes that was left because the ingress stopped

	GivenUp uint64 // whole frames that were read and not published, because of Abort or a failure
	Unread  uint64 // bytes that were received and not read, counted when frames are given up

	// Errors counts, by reason, connections that ended badly or were not taken on. Reasons that never occurred are there
	// too.
	Errors map[string]uint64
}

// FramesPerRead returns how many frames a read call brought on average, 0 before the first.
func (s Stats) FramesPerRead() float64 {
	if s.Reads == 0 {
		return 0
	}
	return float64(s.Frames) / float64(s.Reads)
}

// Stats returns the figures now.
func (in *Ingress) Stats() Stats {
	s := Stats{
		Accepted: in.accepted.Load(), Refused: in.ends[refused].Load(),
		BuffersInUse: in.workers.inUse(), Buffers: len(in.workers.all), Waiting: int(in.workers.waiting.Load()),
		PartialHeld: in.chunks.held.Load(), PartialFrames: in.tornFrames.Load(), PartialBytes: in.tornBytes.Load(),
		StopPartial: in.stopTorn.Load(), GivenUp: in.givenUp.Load(), Unread: in.unread.Load(),
		Errors: make(map[string]uint64),
	}
	in.mu.Lock()
	s.Open = len(in.conns)
	in.mu.Unlock()
	for why := range reasons {
		if why.isError() {
			s.Errors[why.String()] = in.ends[why].Load()
		}
	}
	for _, w := range in.workers.all {
		w.count.addTo(&s)
	}
	var listeners []net.Listener
	for _, e := range in.entrances {
		switch e := e.(type) {
		case *acceptor:
			listeners = append(listeners, e.listener)
		case *datagrams:
			e.ask()
			e.count.addTo(&s)
			s.Dropped += e.dropped.all.Load()
		}
	}
	s.Queue = door.QueueOf(listeners...)
	return s
}

func (t *traffic) addTo(s *Stats) {
	s.Frames += t.frames.Load()
	s.Bytes += t.bytes.Load()
	s.Batches += t.batches.Load()
	s.Reads += t.reads.Load()
	s.Received += t.received.Load()
	s.Datagrams += t.datagrams.Load()
	s.Publishing += time.Duration(t.publishing.Load())
	s.Backpressure += time.Duration(t.backpressure.Load())
	s.BatchSizes.Take(&t.batchSizes)
	s.ReadTimes.Take(&t.readTimes)
	s.PublishTimes.Take(&t.publishTimes)
}
