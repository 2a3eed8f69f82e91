package outbox

import (
	"iter"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// maxSegments is how many segments a Batch takes: what one writev does.
const maxSegments = sys.MaxIovecs

// A Batch is what is sent to many peers at once: segments, and the vectors that name them for the kernel, made once for
// all peers. It is for one goroutine at a time. The zero value is empty.
type Batch struct {
	segs   []Segment
	iov    []unix.Iovec
	bytes  int
	frames int
}

// Add appends a segment that has so many frames, and takes over the caller's reference. It returns false, and takes
// nothing, if the batch is full.
func (b *Batch) Add(s Segment, frames int) bool {
	if n := len(b.segs); n > 0 && b.segs[n-1].joins(s) {
		last := &b.segs[n-1]
		last.to = s.to
		b.iov[n-1].SetLen(last.Len())
		s.Drop() // one reference for the run
	} else {
		if n == maxSegments {
			return false
		}
		b.segs = append(b.segs, s)
		b.iov = append(b.iov, vector(s.Bytes()))
	}
	b.bytes += s.Len()
	b.frames += frames
	return true
}

// Bytes is how many bytes the batch has.
func (b *Batch) Bytes() int { return b.bytes }

// Frames is how many frames the batch has.
func (b *Batch) Frames() int { return b.frames }

// Reset empties the batch and drops its references.
func (b *Batch) Reset() {
	for _, s := range b.segs {
		s.Drop()
	}
	clear(b.segs)
	clear(b.iov)
	*b = Batch{segs: b.segs[:0], iov: b.iov[:0]}
}

func vector(b []byte) unix.Iovec {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	return v
}

// Segments are the batch's segments. Who keeps one holds it.
func (b *Batch) Segments() iter.Seq[Segment] { return slices.Values(b.segs) }

// A Run is a segment that grows while frames stand side by side. The zero value is empty.
type Run struct {
	s      Segment
	frames int
}

// Add puts one frame behind the run, and takes over the caller's reference. It returns false, and takes nothing, if the
// frame stands elsewhere.
func (r *Run) Add(s Segment) bool {
	switch {
	case r.frames == 0:
		r.s = s
	case r.s.joins(s):
		r.s.to = s.to
		s.Drop()
	default:
		return false
	}
	r.frames++
	return true
}

// Len is how many bytes the run has.
func (r *Run) Len() int { return r.s.Len() }

// Take returns what the run has, with a reference, and empties it; ok is false if it is empty.
func (r *Run) Take() (s Segment, frames int, ok bool) {
	s, frames = r.s, r.frames
	*r = Run{}
	return s, frames, frames > 0
}
