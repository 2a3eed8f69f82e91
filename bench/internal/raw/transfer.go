package raw

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/shm"
)

// The roles of the one-way transfer.
const (
	RoleFill  = "raw/fill"
	RoleDrain = "raw/drain"
)

// A Transfer is one way to move blocks of cache lines: the writer fills a block,
// counts it with one release store, and goes on while the region has room; the reader
// waits for the count, reads every word, and counts in turn.
type Transfer struct {
	// Block is the number of lines of a block, Region the bytes of the region that is
	// written round and round; it holds at least two blocks.
	Block  int   `json:"block"`
	Region int64 `json:"region"`
	// Prefetch is how many lines ahead the writer asks for ownership (PREFETCHW); 0: not.
	Prefetch int `json:"prefetch"`
	// Pause is the number of PAUSE instructions between two looks.
	Pause uint32 `json:"pause"`
}

// String names the way.
func (t Transfer) String() string {
	return fmt.Sprintf("%s blocks of %d, prefetch %d, pause %d", shm.FormatSize(t.Region), t.Block, t.Prefetch, t.Pause)
}

// blocks is how many blocks the region holds.
func (t Transfer) blocks() uint64 { return uint64(t.Region / arch.CacheLine / int64(t.Block)) }

// Check says what is wrong with t, for a segment that holds a region of at most size.
func (t Transfer) Check(size int64) error {
	switch {
	case t.Block < 1:
		return fmt.Errorf("raw: a block of %d lines: use at least 1", t.Block)
	case t.Region > size:
		return fmt.Errorf("raw: a region of %d bytes is above the segment's %d", t.Region, size)
	case t.blocks() < 2:
		return fmt.Errorf("raw: a region of %d bytes holds less than two blocks of %d lines: use at least %d bytes",
			t.Region, t.Block, 2*t.Block*arch.CacheLine)
	}
	return nil
}

// TransferParams are what both sides of a round are told.
type TransferParams struct {
	Transfer
	// Round numbers the rounds over one segment, from 1.
	Round uint64 `json:"round"`
	// Count, in lines, and Duration bound what is timed, which is all but the first lap; 0:
	// no bound. One must be set.
	Count    int64         `json:"count"`
	Duration time.Duration `json:"duration"`
}

func (p TransferParams) base() uint64 { return p.Round << roundBits }

// endBit, in the count of filled blocks, says that it is the last of the round.
const endBit = 1 << 63

// setUp maps the segment and checks the parameters against it.
func (s *side) setUp(t *worker.Task) (TransferParams, error) {
	var p TransferParams
	if err := errors.Join(t.Decode(&p), s.open(t)); err != nil {
		return p, err
	}
	return p, p.Check(int64(len(s.m.lines)) * arch.CacheLine)
}

// fill is the side that writes. It has no result.
func (s *side) fill(t *worker.Task) (any, error) {
	p, err := s.setUp(t)
	if err != nil {
		return nil, err
	}
	if err := t.Await(); err != nil {
		return nil, err
	}
	fill(s.m, p)
	return nil, nil
}

func fill(m memory, p TransferParams) {
	var start time.Time
	blocks := p.blocks()
	limit := blocks // may be filled up to this number of blocks
	for n := uint64(1); ; n++ {
		for n > limit {
			limit = blocks + since(m.emptied, p.base())
			if n > limit && p.Pause != 0 {
				arch.Pause(p.Pause)
			}
		}
		p.write(m.lines, n)
		if n == blocks {
			start = time.Now()
		}
		if n > blocks && p.over(n-blocks, start) {
			m.filled.Store(p.base() + n | endBit)
			break
		}
		arch.StoreRelease(m.filled, p.base()+n)
	}
}

// over says whether n blocks since start are enough.
func (p TransferParams) over(n uint64, start time.Time) bool {
	return p.Count != 0 && int64(n)*int64(p.Block) >= p.Count ||
		p.Duration != 0 && n%16 == 0 && time.Since(start) > p.Duration
}

// since is a counter's value in this round; an earlier round's is 0.
func since(word *atomic.Uint64, base uint64) uint64 {
	n := word.Load() &^ endBit
	if n < base {
		return 0
	}
	return n - base
}

// write fills the n-th block: every word is the number of the block.
func (p TransferParams) write(lines []line, n uint64) {
	from := int((n-1)%p.blocks()) * p.Block
	whole := int(p.blocks()) * p.Block
	for i := from; i < from+p.Block; i++ {
		if p.Prefetch != 0 {
			ahead := i + p.Prefetch
			if ahead >= whole {
				ahead -= whole
			}
			prefetch(&lines[ahead])
		}
		lines[i] = line{n, n, n, n, n, n, n, n}
	}
}

// drain is the side that reads; its result is a report.Rate in lines.
func (s *side) drain(t *worker.Task) (any, error) {
	p, err := s.setUp(t)
	if err != nil {
		return nil, err
	}
	if err := t.Await(); err != nil {
		return nil, err
	}
	rate, err := drain(s.m, p)
	return rate, err
}

func drain(m memory, p TransferParams) (report.Rate, error) {
	var start time.Time
	warm := p.blocks() // the first lap is not timed
	for n, filled := uint64(1), uint64(0); ; n++ {
		for n > filled {
			filled = since(m.filled, p.base())
			if n > filled && p.Pause != 0 {
				arch.Pause(p.Pause)
			}
		}
		if err := p.read(m.lines, n); err != nil {
			return report.Rate{}, err
		}
		arch.StoreRelease(m.emptied, p.base()+n)
		if n == warm {
			start = time.Now()
		}
		if n == filled && m.filled.Load() == p.base()+n|endBit {
			return report.Rate{Frames: int64(n-warm) * int64(p.Block), Nanoseconds: int64(time.Since(start))}, nil
		}
	}
}

// read looks at every word of the n-th block.
func (p TransferParams) read(lines []line, n uint64) error {
	from := int((n-1)%p.blocks()) * p.Block
	var odd uint64
	for i := from; i < from+p.Block; i++ {
		l := &lines[i]
		odd |= l[0] ^ n | l[1] ^ n | l[2] ^ n | l[3] ^ n | l[4] ^ n | l[5] ^ n | l[6] ^ n | l[7] ^ n
	}
	if odd != 0 {
		return fmt.Errorf("raw: block %d arrived changed", n)
	}
	return nil
}

// Ways are how a region is tried with blocks of a number of lines: with and without a
// prefetch, and with a short and a long pause of who waits, so that lines gather.
func Ways(region int64, block int) []Transfer {
	return []Transfer{
		{Block: block, Region: region, Pause: 1},
		{Block: block, Region: region, Prefetch: 24, Pause: 1},
		{Block: block, Region: region, Prefetch: 24, Pause: 64},
	}
}
