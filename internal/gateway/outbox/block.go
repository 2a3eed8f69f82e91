package outbox

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/invariants"
)

const (
	blockSize = 64 << 10 // bytes: one vector of a writev takes many frames, and what a lagging peer pins beyond its lag is small
	blockEnds = 2048     // frames in a block: a frame of the smallest kind (32 bytes) fills both at the same time
)

// Blocks lends blocks, and knows how much memory is out. The zero value is ready. It is safe for concurrent use.
type Blocks struct {
	pool sync.Pool
	live atomic.Int64
}

// Live returns how many bytes of memory blocks that somebody refers to have.
func (p *Blocks) Live() int64 { return p.live.Load() }

// A Block is memory with encoded frames. One goroutine appends (through a Tape); what it has handed out as Segments never
// changes, and anybody may read that while holding a reference.
type Block struct {
	home *Blocks
	mem  []byte        // all of it; readers use only what their segments name
	used int           // how much of mem is written; the appender's alone
	ends []uint32      // where each frame ends; all of blockEnds
	told atomic.Uint32 // how many of ends are written
	refs atomic.Int32
	pins atomic.Int32 // peers that keep it for the rest of a frame
}

// get lends a block with room for at least n bytes and one reference.
func (p *Blocks) get(n int) *Block {
	b, _ := p.pool.Get().(*Block)
	if n > blockSize || b == nil {
		if b != nil {
			p.pool.Put(b)
		}
		b = &Block{home: p, mem: make([]byte, max(n, blockSize)), ends: make([]uint32, blockEnds)}
	}
	b.refs.Store(1)
	p.live.Add(int64(len(b.mem)))
	return b
}

// hold adds a reference; the caller has one already.
func (b *Block) hold() { b.refs.Add(1) }

// drop gives a reference back; with the last one the memory may be used for something else.
func (b *Block) drop() {
	switch n := b.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("outbox: a block was dropped more often than it was held")
	}
	b.home.live.Add(-int64(len(b.mem)))
	invariants.Poison(b.mem)
	if len(b.mem) > blockSize {
		return // memory for one large frame is not worth keeping
	}
	b.used = 0
	b.told.Store(0)
	b.home.pool.Put(b)
}

// pin counts the block's memory, once for all who pin it, unless the sum would be above the limit. The caller has a reference.
func (b *Block) pin(sum *atomic.Int64, limit int64) bool {
	if b.pins.Add(1) > 1 {
		return true
	}
	if size := int64(len(b.mem)); sum.Add(size) > limit && sum.Load() > size {
		b.unpin(sum)
		return false
	}
	return true
}

// unpin undoes one pin.
func (b *Block) unpin(sum *atomic.Int64) {
	if b.pins.Add(-1) == 0 {
		sum.Add(-int64(len(b.mem)))
	}
}

// boundary returns the first end of a frame at or behind the offset from, and how many frames end behind from up to to.
// Without such an end, it is to.
func (b *Block) boundary(from, to uint32) (end uint32, frames int) {
	ends := b.ends[:b.told.Load()]
	i, exact := slices.BinarySearch(ends, from)
	j, last := slices.BinarySearch(ends, to)
	if last {
		j++
	}
	switch {
	case from == 0:
		return 0, j
	case exact:
		return from, j - i - 1
	case i < len(ends):
		return min(ends[i], to), j - i
	}
	return to, 0
}

// A Segment is a run of bytes in a block. Who keeps one holds a reference to its block.
type Segment struct {
	b        *Block
	from, to uint32
}

// Len is the number of bytes.
func (s Segment) Len() int { return int(s.to - s.from) }

// Bytes are the bytes themselves. They must not be written to, and are valid while a reference is held.
func (s Segment) Bytes() []byte { return s.b.mem[s.from:s.to:s.to] }

// Hold and Drop add a reference to the segment's block and give one back.
func (s Segment) Hold() { s.b.hold() }

// Drop gives a reference back.
func (s Segment) Drop() { s.b.drop() }

// joins says whether t goes on where s ends.
func (s Segment) joins(t Segment) bool { return s.b == t.b && s.to == t.from }

// A Tape is where one goroutine encodes frames. Close it.
type Tape struct {
	blocks *Blocks
	cur    *Block
}

// NewTape returns a tape that borrows from blocks.
func NewTape(blocks *Blocks) *Tape { return &Tape{blocks: blocks} }

// Append lets encode append one frame of at most n bytes to its argument, and returns where it stands. The segment has a
// reference of its own, which the caller drops or hands on. If encode fails nothing is appended.
func (t *Tape) Append(n int, encode func(dst []byte) ([]byte, error)) (Segment, error) {
	b := t.cur
	if b == nil || len(b.mem)-b.used < n || int(b.told.Load()) == len(b.ends) {
		b = t.turn(n)
	}
	from := b.used
	longer, err := encode(b.mem[:from])
	if err != nil {
		return Segment{}, err
	}
	if len(longer) > len(b.mem) {
		panic("outbox: a frame is longer than was said")
	}
	b.used = len(longer)
	told := b.told.Load()
	b.ends[told] = uint32(b.used)
	b.told.Store(told + 1)
	b.hold()
	return Segment{b: b, from: uint32(from), to: uint32(b.used)}, nil
}

// turn begins a new block.
func (t *Tape) turn(n int) *Block {
	t.Close()
	t.cur = t.blocks.get(n)
	return t.cur
}

// Close gives the last block back. The tape may be used again.
func (t *Tape) Close() {
	if t.cur != nil {
		t.cur.drop()
		t.cur = nil
	}
}
