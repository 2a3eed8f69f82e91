package gateway

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/invariants"
)

// workers lends workers in the order in which they are asked for. It is safe for concurrent use.
//
// A channel of workers would nearly do, but between giving one back and asking for the next a connection could lose its
// processor, and with it its place in the order; yield does both in one step.
type workers struct {
	all     []*worker
	waiting atomic.Int32 // connections in the queue

	mu          sync.Mutex
	free        []*worker
	first, last *waiter // the queue; empty when workers are free
}

// waiter is a connection's place in the queue.
type waiter struct {
	turn chan *worker // gets the worker, once

	// Guarded by workers.mu.
	next   *waiter
	served bool // it is out of the queue, and a worker is in turn or will be
	gone   bool // it has given up, and is in the queue only until somebody comes across it
}

var waiterPool = sync.Pool{New: func() any { return &waiter{turn: make(chan *worker, 1)} }}

func newWorkers(lanes []Lane, bufferSize, batchFrames int) *workers {
	p := new(workers)
	for _, lane := range lanes {
		p.all = append(p.all, &worker{
			lane: lane, buf: make([]byte, bufferSize), frames: make([][]byte, 0, batchFrames),
		})
	}
	p.free = append(p.free, p.all...)
	return p
}

// acquire waits for a worker, and says how long it waited. It returns nil if it would have to wait and done is closed.
func (p *workers) acquire(done <-chan struct{}) (w *worker, waited time.Duration) {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		w, p.free = p.free[n-1], p.free[:n-1]
		p.mu.Unlock()
		return w, 0
	}
	me := p.enqueue()
	p.mu.Unlock()
	return p.wait(me, done)
}

// yield gives w back and waits at the end of the queue for another one, as acquire does. If nobody waits it returns w.
// What was in its buffer is gone.
func (p *workers) yield(w *worker, done <-chan struct{}) (_ *worker, waited time.Duration) {
	p.mu.Lock()
	next := p.dequeue()
	if next == nil {
		p.mu.Unlock()
		return w, 0
	}
	me := p.enqueue()
	p.mu.Unlock()
	invariants.Poison(w.buf)
	next.turn <- w
	return p.wait(me, done)
}

// release gives a worker back. What was in its buffer is gone.
func (p *workers) release(w *worker) {
	invariants.Poison(w.buf)
	p.mu.Lock()
	next := p.dequeue()
	if next == nil {
		p.free = append(p.free, w)
	}
	p.mu.Unlock()
	if next != nil {
		next.turn <- w
	}
}

// wait waits for this waiter's turn.
func (p *workers) wait(me *waiter, done <-chan struct{}) (w *worker, waited time.Duration) {
	began := time.Now()
	select {
	case w = <-me.turn:
	case <-done:
		if p.leave(me) {
			return nil, time.Since(began) // the queue still has it, so it does not go back to the pool
		}
		w = <-me.turn
	}
	me.served = false
	waiterPool.Put(me)
	return w, time.Since(began)
}

// leave gives up a place in the queue, unless a worker is on its way already.
func (p *workers) leave(me *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if me.served {
		return false
	}
	me.gone = true
	p.waiting.Add(-1)
	return true
}

// enqueue puts a new waiter at the end of the queue. The caller holds mu.
func (p *workers) enqueue() *waiter {
	me := waiterPool.Get().(*waiter)
	if p.last == nil {
		p.first = me
	} else {
		p.last.next = me
	}
	p.last = me
	p.waiting.Add(1)
	return me
}

// dequeue takes the first waiter that has not given up out of the queue, or returns nil. The caller holds mu, and owes
// that waiter a worker.
func (p *workers) dequeue() *waiter {
	for p.first != nil {
		w := p.first
		p.first, w.next = w.next, nil
		if p.first == nil {
			p.last = nil
		}
		if !w.gone {
			w.served = true
			p.waiting.Add(-1)
			return w
		}
	}
	return nil
}

// wanted says whether a connection waits for a worker.
func (p *workers) wanted() bool { return p.waiting.Load() > 0 }

// inUse returns how many workers are lent.
func (p *workers) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all) - len(p.free)
}
