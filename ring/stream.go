package ring

import "github.com/hugebus/hugebus/internal/arch"

// A reader close behind a publisher that streams costs more than anything else: it takes
// each line away from the publisher's core while that one is about to write it, and its
// core fetches the next ones too. A reader that stays some dozen lines behind gets them
// in runs, which both cores handle many at a time: several times the frames a second
// (docs/performance.md). So a subscriber that has caught up with a stream waits, for some two
// microseconds at most, until the frame streamAhead further on is there.
//
// A frame that comes alone is not held up: the heat that makes a stream is gained by
// polls that find frames in a row, and lost by those that find none.
const (
	streamAhead = 256 // frames to stay behind
	streamLooks = 40  // looks at the frame ahead
	streamPause = 8   // PAUSEs between two looks: all looks take some 2 µs
	heatMost    = 128 // so that the end of a stream is noticed within a few polls
	heatGain    = 8   // for each frame
	heatStream  = 16  // a stream from here on
)

// A stream is what a Subscriber knows of the pace of its frames.
type stream struct {
	heat uint64
	size uint64 // of the last frame, in bytes of the ring
	dry  bool   // the last Poll took all there was
}

// hot reports whether the subscriber has caught up with a stream.
func (t *stream) hot() bool { return t.dry && t.heat >= heatStream }

// polled notes what a Poll found: n frames, the last of them size bytes; dry: it ended
// for want of more; waited: it had waited before.
func (t *stream) polled(n int, size uint64, dry, waited bool) {
	t.dry = dry
	switch {
	case n > 0:
		t.heat = min(t.heat+uint64(n)*heatGain, heatMost)
		t.size = size
	case waited:
		t.heat = 0
	default:
		t.heat -= min(t.heat, t.heat/4+1)
	}
}

// trail waits a little until the frame streamAhead frames on is there, if frames are
// as large as the last one; if they are not, or no more come, it waits its time out.
func (s *Subscriber) trail() {
	at := s.pos + min(s.stream.size*streamAhead, (s.mask+1)/8&^(CellSize-1))
	off, stamp := at&s.mask, stampOf(at, s.key)
	for range streamLooks {
		// A probe, because any byte of a frame may be written there just now.
		if s.data.probe(off) == stamp {
			return
		}
		arch.Pause(streamPause)
	}
}
