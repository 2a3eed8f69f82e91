package siege

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/chaos"
)

// A feed sends frames to one ingress, over one connection after the other.
type feed struct {
	arena  *arena
	ending atomic.Bool   // the ingress was told to end: the end of a connection says nothing about frames
	sent   atomic.Uint64 // frames, by all connections
	stop   context.CancelFunc
	done   chan struct{}
	tally  chan<- event
	number func() uint32
	last   *published // the connection before, of which is not known how it ended
}

// feedTo feeds an ingress until stop or its end.
func feedTo(address string, a *arena, number func() uint32, seed uint64, events chan<- event) *feed {
	ctx, cancel := context.WithCancel(context.Background())
	f := &feed{arena: a, stop: cancel, done: make(chan struct{}), tally: events, number: number}
	go func() {
		defer close(f.done)
		random := rand.New(rand.NewPCG(seed, 4))
		for ctx.Err() == nil && f.connection(ctx, address, random, 500) {
		}
		f.connection(context.Background(), address, random, 0) // to hear of the last one
		f.report(f.last, false)
	}()
	return f
}

// connection sends over one connection, some batches at most, and reports whether it ended well.
//
// The end of a connection is no proof that its frames are published: a killed process ends it in the same way, if it had read
// all. But the end of the next one is a proof for this one: who was dead would not have accepted that.
func (f *feed) connection(ctx context.Context, address string, random *rand.Rand, most int) bool {
	if most == 0 && f.last == nil {
		return false
	}
	id := f.number()
	c, err := chaos.NewFeeder(context.Background(), address, id, f.arena.payload)
	if err != nil {
		return false
	}
	for n := random.IntN(most + 1); n > 0 && ctx.Err() == nil && err == nil; n-- {
		batch := 1 + random.IntN(16)
		err = c.Send(batch)
		f.sent.Add(uint64(batch))
		time.Sleep(time.Duration(random.IntN(5000)) * time.Microsecond)
	}
	well := err == nil && c.Finish() && !f.ending.Load()
	_ = c.Close()
	f.report(f.last, well)
	f.last = &published{arena: f.arena, id: id, tried: c.Tried()}
	return well
}

// report tells of a connection that has ended.
func (f *feed) report(p *published, well bool) {
	if p == nil {
		return
	}
	if well {
		p.done = p.tried
	}
	f.tally <- event{fed: p}
	f.last = nil
}
