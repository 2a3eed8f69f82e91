package door

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// classes is how many counters a Histogram has: for values of up to 1, 2, 4 and so on to 2^34 (17 s in nanoseconds), and one for what
// is beyond.
const classes = 36

// A Histogram counts values by their size in powers of two. Adding allocates nothing and waits for nobody. The zero value is
// ready; it is safe for concurrent use.
type Histogram struct {
	counts [classes]atomic.Uint64
	sum    atomic.Uint64
}

// Add counts a value.
func (h *Histogram) Add(v uint64) {
	h.counts[class(v)].Add(1)
	h.sum.Add(v)
}

// Time counts a duration, in nanoseconds.
func (h *Histogram) Time(d time.Duration) { h.Add(uint64(max(d, 0))) }

// class returns the index of the counter for v: the least i for which v is at most 1<<i.
func class(v uint64) int {
	if v <= 1 {
		return 0
	}
	return min(bits.Len64(v-1), classes-1)
}

// A Spread is what one Histogram, or several together, had counted at a moment.
type Spread struct {
	Counts [classes]uint64 // Counts[i] of values of up to 1<<i and more than half of that; the last has all larger ones
	Sum    uint64          // of the values
}

// Take adds what a Histogram has counted.
func (s *Spread) Take(h *Histogram) {
	for i := range h.counts {
		s.Counts[i] += h.counts[i].Load()
	}
	s.Sum += h.sum.Load()
}
