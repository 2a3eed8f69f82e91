package workload

import (
	"errors"

	"github.com/hugebus/hugebus/internal/sys"
)

// Counts are what the kernel and the processor counted on one side while the clock ran.
type Counts struct {
	Faults int64 `json:"faults"`
	// TLBMisses is nil where the machine does not count them.
	TLBMisses *int64 `json:"tlb_misses"`
}

// A counting counts from begin on, for the calling thread. A nil one does nothing.
type counting struct {
	tlb    *sys.Counter // nil: not counted here
	faults int64
	misses int64
	failed error
}

func newCounting(wanted bool) *counting {
	if !wanted {
		return nil
	}
	c := &counting{}
	c.tlb, _ = sys.CountTLBMisses() // most virtual machines have no such counter
	return c
}

func (c *counting) begin() {
	if c != nil {
		c.faults, c.misses, c.failed = c.now()
	}
}

func (c *counting) now() (faults, misses int64, err error) {
	if c.tlb != nil {
		misses, err = c.tlb.Read()
	}
	u, usageErr := sys.ProcessUsage()
	return u.Faults, misses, errors.Join(err, usageErr)
}

// end returns what was counted, and gives the counter back.
func (c *counting) end() (Counts, error) {
	if c == nil {
		return Counts{}, nil
	}
	faults, misses, err := c.now()
	counts := Counts{Faults: faults - c.faults}
	if c.tlb != nil {
		misses -= c.misses
		counts.TLBMisses = &misses
		err = errors.Join(err, c.tlb.Close())
	}
	return counts, errors.Join(c.failed, err)
}
