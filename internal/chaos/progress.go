package chaos

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/hugebus/hugebus/shm"
)

// A Progress is what publishers have tried and done, in a segment that they share with the checker, so that it is
// known also of those that were killed at whatever instruction. Each publisher process has a place of its own, which
// the next one may use when it is dead.
//
//	offset  size  field (of each place of 64 bytes)
//	 0       8    tried: sequence numbers below may be in the topic
//	 8       8    done: those below are, because their publishing returned
type Progress struct {
	segment *shm.Segment
}

const placeSize = 64

// NewProgress makes places for n publishers. Close it.
func NewProgress(n int) (*Progress, error) {
	s, err := shm.Create(shm.Options{Name: "hugebus.progress", Size: int64(n * placeSize), Pages: shm.Pages4KiB})
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return &Progress{segment: s}, nil
}

// OpenProgress maps a Progress that came from the checker. It owns f, also with an error. Close it.
func OpenProgress(f *os.File) (*Progress, error) {
	s, err := shm.Open(f, true)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return &Progress{segment: s}, nil
}

// File is the descriptor to hand to publishers. It still belongs to p.
func (p *Progress) File() *os.File { return p.segment.File() }

// Close unmaps it.
func (p *Progress) Close() error { return p.segment.Close() }

// Read returns what the publisher of a place has tried and done. While it lives, that may be old by the time it returns.
func (p *Progress) Read(place int) (tried, done uint64) {
	b := p.at(place)
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
}

// Reset readies a place for the next publisher. Call it when the one before is dead.
func (p *Progress) Reset(place int) { clear(p.at(place)) }

func (p *Progress) at(place int) []byte { return p.segment.Bytes()[place*placeSize:][:placeSize] }

// A tally is a publisher's own place.
type tally []byte

func (t tally) try(below uint64)  { binary.LittleEndian.PutUint64(t, below) }
func (t tally) done(below uint64) { binary.LittleEndian.PutUint64(t[8:], below) }
