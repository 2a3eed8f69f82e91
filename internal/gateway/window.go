package gateway

// smallPartial is the size up to which the beginning of a frame is copied into the large buffer at every turn, which
// costs less than the read call that it saves. What is larger stays in its own memory, and bytes are read behind it, or
// a sender of single bytes would have all of them copied for each new one.
const smallPartial = 4 << 10

// A window is the part of a buffer that holds bytes which have come and are not cut yet: b[start:end].
type window struct {
	b          []byte
	start, end int
}

func (w *window) len() int { return w.end - w.start }

func (w *window) held() []byte { return w.b[w.start:w.end] }

func (w *window) free() []byte { return w.b[w.end:] }

// moveTo copies what is held to the start of b, which may be the window's own buffer, and uses b from then on.
func (w *window) moveTo(b []byte) {
	*w = window{b: b, end: copy(b, w.held())}
}

// A stretch is the uncut bytes of one connection. They stand in a buffer that was borrowed, or, between turns and where
// a frame is larger than that buffer, in a chunk of their own.
type stretch struct {
	window
	own  *chunk // nil: the window is in a borrowed buffer, or there is none
	pool *chunks
}

// room returns where to read the next bytes to; buf is the borrowed buffer, and need is how many bytes the next frame
// takes at least. Memory grows with the bytes that have come, never by need alone.
func (s *stretch) room(buf []byte, need int) []byte {
	held := s.len()
	need = max(need, held+1)
	full := s.end == len(s.b)
	switch {
	case held == 0:
		s.drop()
		s.b = buf
	case s.own != nil && need <= len(buf) && (held <= smallPartial || s.start > 0 || full):
		s.borrow(buf)
	case s.start == 0: // nothing can be gained by moving
	case s.start+need > len(s.b), held <= smallPartial && len(s.free()) < len(s.b)/2:
		s.moveTo(s.b)
	}
	if s.end == len(s.b) {
		s.keep(min(need, 2*held))
	}
	return s.free()
}

// borrow moves the bytes into a borrowed buffer that has room for them.
func (s *stretch) borrow(buf []byte) {
	s.moveTo(buf)
	s.pool.put(s.own)
	s.own = nil
}

// keep moves the bytes into a new chunk with room for at least n.
func (s *stretch) keep(n int) {
	c := s.pool.get(n)
	s.moveTo(c.b)
	s.pool.put(s.own)
	s.own = c
}

// park takes what is held out of the borrowed buffer before that is given back. A chunk that has become too large, because
// a frame was cut from it, is exchanged for one of the right size.
func (s *stretch) park() {
	held := s.len()
	switch {
	case held == 0:
		s.drop()
	case s.own == nil || s.start > 0 || len(s.b) > max(2*held, minChunk):
		s.keep(held + 1)
	}
}

// drop forgets what is held.
func (s *stretch) drop() {
	s.pool.put(s.own)
	*s = stretch{pool: s.pool}
}
