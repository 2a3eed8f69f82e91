package ring

import (
	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/invariants"
)

// A subscriber that does not gate, or that may stop gating while it reads, copies
// frames first and asks afterwards whether the copy can be trusted: a publisher
// moves tail before it writes (SYNC(tail)), so if tail has not passed a
// frame by more than a capacity when the copy is done, nobody had begun to overwrite it.

// copies holds what one Poll has copied.
type copies struct {
	frames []Frame
	buf    []byte
	bound  int // bytes of positions that one Poll copies from, unless a single frame is larger
}

// maxCopy bounds a Poll's copy: small enough to be in cache when it is handed out.
const maxCopy = 256 << 10

func (c *copies) init(capacity uint64) {
	// A small part of a small ring, or the copy itself would be lapped.
	c.bound = int(min(max(capacity/16, CellSize), maxCopy))
	c.frames = make([]Frame, 0, 64)
	c.buf = make([]byte, 0, min(c.bound, 4096))
}

// take appends a copy of the n bytes at off and returns it; not ok: there is no more
// space in this Poll. Growing moves the buffer, which earlier frames of the same Poll
// still point into, so it only grows while it is empty.
func (c *copies) take(data region, off, n uint64) ([]byte, bool) {
	if len(c.buf)+int(n) > cap(c.buf) {
		if len(c.buf) > 0 {
			return nil, false
		}
		c.buf = make([]byte, 0, max(int(n), c.bound))
	}
	at := len(c.buf)
	c.buf = c.buf[:at+int(n)]
	dst := c.buf[at : at+int(n) : at+int(n)]
	data.copyOut(dst, off)
	return dst, true
}

// pollCopy is Poll for lossy, evicting and evicted subscribers.
func (s *Subscriber) pollCopy(limit int, fn handler) (int, error) {
	if fn.many != nil {
		limit = min(limit, BatchFrames)
	}
	end, err := s.gather(limit)
	failpoint.Hit(FailCopied)
	arch.LoadLoad() // SYNC(tail): acquire, after the copy
	tail := s.r.Tail()
	if tail.Sub(Position(s.pos)) > int64(s.mask+1) {
		if s.gates && s.evicted() {
			// It happened while we copied. That comes first: a gap of a subscriber that
			// gates would be a loss.
			return 0, ErrEvicted
		}
		return 0, s.overrun(tail)
	}
	n, end, said := fn.hand(s.copies.frames, end)
	if said != nil {
		err = said
	}
	if end != s.pos {
		s.advance(end, n)
	}
	if invariants.Enabled {
		invariants.Poison(s.copies.buf)
	}
	if err == ErrStop {
		err = nil
	}
	return n, err
}

// gather copies up to limit frames from the cursor on, and returns where it stopped. What
// it read may have been overwritten meanwhile, so no value is believed further than
// memory safety needs.
func (s *Subscriber) gather(limit int) (end uint64, err error) {
	c := &s.copies
	c.frames, c.buf = c.frames[:0], c.buf[:0]
	pos := s.pos
	for len(c.frames) < limit {
		// A lap of padding alone, or no end of empty frames, is a hostile publisher's.
		if passed := pos - s.pos; passed > s.mask || len(c.frames) > 0 && passed >= uint64(c.bound) {
			break
		}
		off := pos & s.mask
		if s.data.probe(off) != stampOf(pos, s.key) {
			break
		}
		arch.LoadLoad() // SYNC(commit): acquire
		h := header(s.data.probe(off + offMeta))
		size := h.size()
		if off+size > s.mask+1 {
			return pos, ErrCorrupt
		}
		switch h.kind() {
		case kindPadding:
		case kindData:
			if h.length() > s.max {
				return pos, ErrCorrupt
			}
			payload, ok := c.take(s.data, off+offPayload, h.length())
			if !ok {
				return pos, nil
			}
			c.frames = append(c.frames, Frame{Payload: payload, Position: Position(pos), Source: h.source()})
		default:
			return pos, ErrCorrupt
		}
		pos += size
	}
	return pos, nil
}

// overrun finds a place to go on and returns the gap.
func (s *Subscriber) overrun(tail Position) error {
	capacity := s.mask + 1
	to := tail
	for range 8 {
		// Half a ring of head start. A boundary found there counts only if tail
		// shows afterwards that it had not been overwritten.
		to = s.r.boundary(tail-Position(capacity/2), tail)
		arch.LoadLoad() // SYNC(tail): acquire
		tail = s.r.Tail()
		if tail.Sub(to) <= int64(capacity) {
			break
		}
		to = tail // always a boundary, and the last resort of a reader that slow
	}
	s.gap = GapError{From: Position(s.pos), To: to}
	s.missed(s.gap.Bytes())
	s.advance(uint64(to), 0)
	return &s.gap
}

// missed counts a gap of n bytes.
func (s *Subscriber) missed(n uint64) {
	s.gaps++
	s.lost += n
	arch.StoreRelease(&s.slot.gaps, s.gaps)
	arch.StoreRelease(&s.slot.gapBytes, s.lost)
}
