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
// polls that find frames in a row, and lost by those that find none. That can be wrong: frames that go back and forth between two near
// cores come after one look or two, and so do those of a stream that was held up for a moment. So a wait that brought too few frames to be
// worth it is not tried again for a while, twice as long after each, until one has been worth it.
const (
	streamAhead = 256   // frames to stay behind
	streamLooks = 5     // looks at the frame ahead: each takes its line from the publisher
	streamPause = 64    // PAUSEs between two looks: all looks take some 7 µs
	heatMost    = 128   // so that the end of a stream is noticed within a few polls
	heatGain    = 8     // for each frame
	heatStream  = 16    // a stream from here on
	worthFrames = 64    // fewer in that time are no faster than a reader without any wait takes them,
	worthBytes  = 16384 // unless they are as many bytes as this
	doubtMost   = 12    // doublings: at most one frame in 4,096 is held up for nothing
)

// A stream is what a Subscriber knows of the pace of its frames.
type stream struct {
	heat  uint64
	size  uint64 // of the last frame, in bytes of the ring
	doubt uint64 // waits in a row that were not worth it
	hold  uint64 // frames until the next wait
}

// hot reports whether frames come in a stream that is worth a wait.
func (t *stream) hot() bool { return t.heat >= heatStream && t.hold == 0 }

// A wait is what came of waiting behind a stream.
type wait uint8

const (
	noWait   wait = iota // there was nothing to wait for
	unneeded             // the frame ahead was there already
	paid                 // it brought enough frames
	vain                 // it did not: too slow, or at its end
)

// polled notes what a Poll found: n frames, the last of them size bytes, after w.
func (t *stream) polled(n int, size uint64, w wait) {
	switch w {
	case unneeded: // by a stream, or by frames that were held up and came all together
		t.doubt -= min(t.doubt, 1)
	case paid:
		t.doubt = 0
	case vain:
		t.heat = 0
		t.doubt = min(t.doubt+1, doubtMost)
		t.hold = 1 << t.doubt
		return
	}
	if n == 0 {
		t.cool()
		return
	}
	t.hold -= min(t.hold, uint64(n))
	t.heat = min(t.heat+uint64(n)*heatGain, heatMost)
	t.size = size
}

// cool notes a look that found nothing.
func (t *stream) cool() { t.heat -= min(t.heat, t.heat/4+1) }

// pace waits a little behind a stream, until the frame streamAhead frames on is there, if frames are as large as the last one; if they are
// not, or no more come, it waits its time out. It says how many frames to read at most, and what came of the wait.
func (s *Subscriber) pace(limit int) (most int, w wait) {
	for look := range streamLooks {
		if s.ahead(streamAhead) {
			w = paid
			if look == 0 {
				w = unneeded
			}
			return min(limit, streamAhead/2), w
		}
		arch.Pause(streamPause)
	}
	if s.ahead(min(worthFrames, worthBytes/max(s.stream.size, CellSize)+1)) {
		return limit, paid
	}
	return limit, vain
}

// ahead reports whether the frame so many frames on is there, or the last that is no more than an eighth of the capacity on.
func (s *Subscriber) ahead(frames uint64) bool {
	size, most := s.stream.size, (s.mask+1)/8
	if size*frames > most {
		frames = most / max(size, CellSize)
	}
	at := s.pos + size*frames
	// A probe, because any byte of a frame may be written there just now.
	return s.data.probe(at&s.mask) == stampOf(at, s.key)
}
