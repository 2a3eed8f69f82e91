package ring

import "github.com/hugebus/hugebus/internal/arch"

// A reader close behind a publisher that streams costs more than anything else: it takes
// each line away from the publisher's core while that one is about to write it, and its
// core fetches the next ones too. A reader that stays some dozen lines behind gets them
// in runs, which both cores handle many at a time: several times the frames a second
// (docs/performance.md). So a subscriber that reads a stream waits, for some seven
// microseconds at most, until the frame streamAhead further on is there, and then
// reads half of the way. It looks seldom: each look takes the line that it looks at.
//
// A frame that comes alone is not held up: the heat that makes a stream is gained by
// polls that find frames in a row, and lost by those that find none.
const (
	streamAhead = 256 // frames to stay behind
	streamLooks = 5   // looks at the frame ahead: each takes its line from the publisher
	streamPause = 64  // PAUSEs between two looks: all looks take some 7 µs
	heatMost    = 128 // so that the end of a stream is noticed within a few polls
	heatGain    = 8   // for each frame
	heatStream  = 16  // a stream from here on
)

// A stream is what a Subscriber knows of the pace of its frames.
type stream struct {
	heat uint64
	size uint64 // of the last frame, in bytes of the ring
}

// hot reports whether frames come in a stream.
func (t *stream) hot() bool { return t.heat >= heatStream }

// polled notes what a Poll found: n frames, the last of them size bytes; late: the frame
// ahead had not come in time.
func (t *stream) polled(n int, size uint64, late bool) {
	switch {
	case late && n < streamAhead/8:
		t.heat = 0 // not worth the wait: too slow, or at its end
	case n > 0:
		t.heat = min(t.heat+uint64(n)*heatGain, heatMost)
		t.size = size
	default:
		t.cool()
	}
}

// cool notes a look that found nothing.
func (t *stream) cool() { t.heat -= min(t.heat, t.heat/4+1) }

// trail waits a little until the frame streamAhead frames on is there, if frames are
// as large as the last one, and reports whether it came; if they are not, or no more
// come, it waits its time out.
func (s *Subscriber) trail() bool {
	at := s.pos + min(s.stream.size*streamAhead, (s.mask+1)/8&^(CellSize-1))
	off, stamp := at&s.mask, stampOf(at, s.key)
	for range streamLooks {
		// A probe, because any byte of a frame may be written there just now.
		if s.data.probe(off) == stamp {
			return true
		}
		arch.Pause(streamPause)
	}
	return false
}
