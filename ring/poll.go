package ring

import (
	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// Failpoints of reading.
const (
	FailMidPoll      = "ring/poll/mid"
	FailBeforeCursor = "ring/poll/before-cursor"
)

// BatchFrames is how many frames a handler of PollBatch gets at most in one call.
const BatchFrames = 64

// A handler takes frames one at a time, or many.
type handler struct {
	one  func(Frame) error
	many func([]Frame) error
}

// Poll hands up to limit frames to fn, in order, and then moves the cursor. It returns
// how many frames fn took, and does not wait for any, but behind a stream that it has caught up with it
// may hold back for some seven microseconds, so that frames come in runs (stream.go).
// Payloads are valid until fn returns.
//
// An error from fn ends Poll with that error; the frame that fn refused is the first
// of the next Poll. ErrStop ends it without an error, with the frame handled. Errors of its own: *GapError (frames were missed; the next
// Poll goes on behind the gap), ErrEvicted once, ErrUngated, ErrCorrupt, ErrClosed.
func (s *Subscriber) Poll(limit int, fn func(Frame) error) (int, error) {
	if s.policy != Reliable || s.behind || !s.joined || s.closed {
		return s.pollOther(limit, handler{one: fn})
	}
	w := noWait
	if s.stream.hot() {
		limit, w = s.pace(limit)
	}
	pos, n, size := s.pos, 0, uint64(0)
	var err error
	var f Frame // one for all: to make it anew would cost as much as to read the frame
	for n < limit {
		off := pos & s.mask
		// SYNC(commit): acquire
		if s.data.word(off).Load() != stampOf(pos, s.key) {
			break
		}
		h := header(s.data.plain(off + offMeta))
		size = h.size()
		if off+size > s.mask+1 {
			err = ErrCorrupt
			break
		}
		if h.kind() == kindData {
			if h.length() > s.max {
				err = ErrCorrupt
				break
			}
			f.Payload, f.Position, f.Source = s.data.bytes(off+offPayload, h.length()), Position(pos), h.source()
			if err = fn(f); err != nil && err != ErrStop {
				break
			}
			failpoint.Hit(FailMidPoll)
			n++
		} else if h.kind() != kindPadding {
			err = ErrCorrupt
			break
		} else if pos+size-s.pos > s.mask {
			limit = 0 // a whole lap: only a hostile publisher pads on and on in front of us
		}
		pos += size
		if err != nil {
			err = nil // ErrStop
			break
		}
	}
	s.stream.polled(n, size, w)
	if pos != s.pos {
		s.advance(pos, n)
	}
	if err == nil && (s.gate.Load()&s.bit == 0 || n == 0 && s.lapped()) {
		err = ErrUngated
	}
	return n, err
}

// PollBatch is Poll for a handler that takes several frames at once, which costs less for each:
// in order, at least one and at most BatchFrames in a call, and as many calls as limit allows. The slice and the payloads are valid until
// fn returns. An error from fn refuses all frames of that call, ErrStop none.
//
// Poll could be the same with a handler of one frame, but then a frame that comes alone would take a tenth longer there and back.
func (s *Subscriber) PollBatch(limit int, fn func([]Frame) error) (int, error) {
	if s.policy != Reliable || s.behind || !s.joined || s.closed {
		return s.pollOther(limit, handler{many: fn})
	}
	w := noWait
	if s.stream.hot() {
		limit, w = s.pace(limit)
	}
	n, size, start := 0, s.stream.size, s.pos
	var err error
	for n < limit && s.pos-start <= s.mask { // no more than a lap: a hostile publisher pads on and on in front of us
		found, end, wrong := s.borrow(min(limit-n, BatchFrames))
		frames := s.batch[:found]
		if found != 0 {
			size = frameSize(uint64(len(frames[found-1].Payload)))
		}
		var taken int
		if taken, end, err = (handler{many: fn}).hand(frames, end); err == nil {
			err = wrong
		}
		n += taken
		if end == s.pos {
			break
		}
		s.advance(end, taken)
		if err != nil {
			break
		}
	}
	s.stream.polled(n, size, w)
	switch {
	case err == ErrStop:
		err = nil
	case err == nil && (s.gate.Load()&s.bit == 0 || n == 0 && s.lapped()):
		err = ErrUngated
	}
	return n, err
}

// borrow looks at up to limit frames from the cursor on, BatchFrames at most, and leaves them in s.batch. It returns
// how many there are and where they end, and ErrCorrupt if what follows cannot be a frame. It stops early where frames are
// large, so that the cursor moves, and makes room, several times a lap.
func (s *Subscriber) borrow(limit int) (n int, end uint64, err error) {
	data, mask, key, pos := s.data, s.mask, s.key, s.pos
	// Frames of a stream have the same header mostly. Then the next frame's address follows from a branch that
	// is predicted, and its line is asked for without waiting for this one's. No header is like the first
	// last: it would be as large as the ring.
	last, size := header(0), mask+2
	most := pos + (mask+1)/8
	for n < limit && int64(most-pos) > 0 {
		off := pos & mask
		// SYNC(commit): acquire
		if data.word(off).Load() != stampOf(pos, key) {
			break
		}
		if h := header(data.plain(off + offMeta)); h != last {
			size = h.size()
			if !h.sound(off, mask+1, s.max) {
				return n, pos, ErrCorrupt
			}
			if h.kind() == kindPadding {
				pos += size
				last, size = header(0), mask+2
				continue
			}
			last = h
		}
		if off+size > mask+1 {
			return n, pos, ErrCorrupt
		}
		// Field by field: a whole Frame would be made on the stack in words, and read again in pairs of words before they have left the store buffer.
		f := &s.batch[n]
		f.Payload = data.bytes(off+offPayload, last.length())
		f.Position = Position(pos)
		f.Source, f.Redelivered = last.source(), 0
		n++
		pos += size
	}
	return n, pos, nil
}

// hand gives frames, which end at position end, to h. It returns how many were taken, where those end, and what h said.
func (h handler) hand(frames []Frame, end uint64) (int, uint64, error) {
	if len(frames) == 0 {
		return 0, end, nil
	}
	if h.many != nil {
		err := h.many(frames)
		if err != nil && err != ErrStop {
			return 0, uint64(frames[0].Position), err
		}
		failpoint.Hit(FailMidPoll)
		return len(frames), end, err
	}
	for i := range frames {
		switch err := h.one(frames[i]); {
		case err == ErrStop:
			return i + 1, uint64(frames[i].Position) + frameSize(uint64(len(frames[i].Payload))), err
		case err != nil:
			return i, uint64(frames[i].Position), err
		}
		failpoint.Hit(FailMidPoll)
	}
	return len(frames), end, nil
}

// lapped looks at tail, once in a while: publishers overwrite what a reliable subscriber has not
// read if a hostile one writes over its cursor, and then nothing is ever there to be found.
func (s *Subscriber) lapped() bool {
	s.idle++
	return s.idle%lappedLooks == 0 && s.r.Tail().Sub(Position(s.pos)) > int64(s.mask+1)
}

// lappedLooks is how many looks find nothing before one asks why.
const lappedLooks = 1024

// advance publishes a new cursor, and wakes publishers that wait for room.
func (s *Subscriber) advance(pos uint64, n int) {
	failpoint.Hit(FailBeforeCursor)
	before := s.pos
	s.pos = pos
	s.frames += uint64(n)
	arch.StoreRelease(&s.slot.frames, s.frames)
	// SYNC(cursor): release. The payloads were read before publishers may write there.
	s.r.publish(&s.slot.cursor, pos)
	failpoint.Hit(FailAfterCursor)
	if s.room.Load()|s.patient.Load() != 0 {
		ringFor(s.room, s.bell)
		if s.patient.Load() != 0 && s.freedHalf(before) {
			ringFor(s.patient, s.bell)
		}
	}
}
