package seqlock

import (
	"structs"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
)

// Counter in memory:
//
//	offset  size  field  written by                       read by  order
//	     0     8  v      the one writer; its repairer     anybody  sequentially consistent
//
// Size 8, alignment 8, the same on every architecture.

// Counter is a sequence counter: odd while its writer changes what it guards, even otherwise. Its zero value is ready
// for use, in memory that may be shared with other processes.
//
// One writer at a time calls Begin and End (or Reset, in place of a writer that is dead). Any number of readers may call
// the other methods at the same time. What the counter guards must be written and read by atomic operations of
// sync/atomic: then no read between a ReadBegin that said ok and a ReadRetry that said false saw half a change.
type Counter struct {
	_ structs.HostLayout
	v atomic.Uint64 // any value; odd: being written. Atomic. Written by the one writer or its repairer.
}

// Even reports whether a value of a counter says that nobody is writing.
func Even(v uint64) bool { return v&1 == 0 }

// Begin makes the counter odd: what it guards is about to change. Writer only.
//
// It is a full fence: no load or store of the writer that follows comes before it. Who joins a topic relies on that: it
// stores its cursor, fences, and then looks at the counter, so that either the writer's refresh, which comes after
// Begin, sees the cursor, or the joiner sees the counter odd. A release store would not do, since the loads of the
// refresh could pass it.
//
// A counter that is odd already (a writer died and nobody called Reset) stays odd and still changes.
func (c *Counter) Begin() {
	// SYNC(counter-begin): release. The stores that follow must not be seen by a reader that still sees the old value.
	arch.StoreFence(&c.v, (c.v.Load()+1)|1)
}

// End makes the counter even again: what it guards is whole. Writer only, after Begin. It is a full fence as well.
func (c *Counter) End() {
	// SYNC(counter-end): release. Who sees this value sees every store that came before it.
	c.v.Store((c.v.Load() | 1) + 1)
}

// Read returns the counter as it is now, odd or even.
func (c *Counter) Read() uint64 { return c.v.Load() }

// ReadBegin starts a read. It returns the counter's value, for ReadRetry, and whether that is even; if not, somebody is
// writing (or died writing), and there is nothing to read now. It looks once: how long to try is for the caller to say.
func (c *Counter) ReadBegin() (v uint64, ok bool) {
	// SYNC(counter-end): acquire. An even value brings all stores of the write that ended with it.
	v = c.v.Load()
	return v, Even(v)
}

// ReadRetry ends a read that ReadBegin started with v. True means that the counter has moved: what was read in between
// may be half old and half new, and must not be used.
func (c *Counter) ReadRetry(v uint64) bool {
	// SYNC(counter-begin): acquire. The guarded loads come before this one: had one of them seen a newer write, then
	// this one sees that write's Begin.
	return c.v.Load() != v
}

// Reset makes the counter even in place of a writer that died, and reports whether it was odd, that is, whether the
// writer died in the middle of a change. What the counter guards may then be half old and half new: the caller makes it
// whole before it calls Reset. Only for the repairer, after the writer is known to be dead.
func (c *Counter) Reset() (died bool) {
	v := c.v.Load()
	if Even(v) {
		return false
	}
	c.v.Store(v + 1)
	return true
}
