package demo

import (
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

// A clock tells CLOCK_MONOTONIC, which all processes of a host share, without a system call for each look: Go's time
// package reads the same clock through the vDSO, and only its zero is its own.
type clock struct {
	base time.Duration
	at   time.Time
}

func newClock() (clock, error) {
	// Between the two readings this process may be interrupted; the least of some tries was not.
	best := clock{}
	least := time.Duration(-1)
	for range 8 {
		before := time.Now()
		base, err := sys.Monotonic()
		if err != nil {
			return clock{}, err
		}
		if took := time.Since(before); least < 0 || took < least {
			least, best = took, clock{base: base, at: before.Add(took / 2)}
		}
	}
	return best, nil
}

func (c clock) now() time.Duration { return c.base + time.Since(c.at) }
