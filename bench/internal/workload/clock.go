package workload

import (
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

// A clock reads the host's monotonic clock, the same for all processes, without a system
// call for each reading.
type clock struct {
	base   time.Time
	offset time.Duration // of the host's clock at base
}

// clockTries is how many pairs of readings a clock is set by. The closest counts: it says
// the offset to within some tens of ns.
const clockTries = 2000

func newClock() (clock, error) {
	c := clock{base: time.Now()}
	closest := time.Duration(-1)
	for range clockTries {
		before := time.Since(c.base)
		now, err := sys.Monotonic()
		after := time.Since(c.base)
		if err != nil {
			return c, err
		}
		if closest < 0 || after-before < closest {
			closest, c.offset = after-before, now-(before+after)/2
		}
	}
	return c, nil
}

// now is the time since some moment that all processes share.
func (c clock) now() time.Duration { return c.offset + time.Since(c.base) }
