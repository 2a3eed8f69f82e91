package gateway

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/invariants"
)

// minChunk is the smallest memory for a torn frame: one cache line, enough for most torn small frames.
const minChunk = 64

// A chunk is memory for the beginning of a frame, of a power of two bytes.
type chunk struct {
	b []byte
}

// chunks lends memory for torn frames. It is safe for concurrent use.
type chunks struct {
	bySize [bits.UintSize]sync.Pool // of *chunk; index i has those of 1<<i bytes
	held   atomic.Int64             // bytes that are lent
}

// get lends a chunk of at least n bytes (n > 0), and less than twice as many unless n is tiny.
func (p *chunks) get(n int) *chunk {
	class := bits.Len(uint(max(n, minChunk) - 1))
	p.held.Add(1 << class)
	if c, ok := p.bySize[class].Get().(*chunk); ok {
		return c
	}
	return &chunk{b: make([]byte, 1<<class)}
}

// put takes a chunk back; nil is none.
func (p *chunks) put(c *chunk) {
	if c == nil {
		return
	}
	invariants.Poison(c.b)
	class := bits.Len(uint(len(c.b) - 1))
	p.held.Add(-1 << class)
	p.bySize[class].Put(c)
}
