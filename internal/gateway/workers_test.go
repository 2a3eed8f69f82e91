package gateway

import (
	"sync"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

func testWorkers(n int) *workers {
	lanes := make([]Lane, n)
	for i := range lanes {
		lanes[i] = lazyLane{}
	}
	return newWorkers(lanes, 1, 1)
}

func TestWorkersAreLentInOrder(t *testing.T) {
	p := testWorkers(1)
	w, _ := p.acquire(nil)
	const n = 10
	order := make(chan int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			w, _ := p.acquire(nil)
			order <- i
			p.release(w)
		}()
		testutil.Eventually(t, "it waits", func() bool { return int(p.waiting.Load()) == i+1 })
	}
	w, waited := p.yield(w, nil) // to the end of the queue: all others come first
	if len(order) != n || waited <= 0 {
		t.Errorf("%d had their turn before who yielded, after %v", len(order), waited)
	}
	wg.Wait()
	for i := range n {
		if got := <-order; got != i {
			t.Errorf("turn %d was for %d", i, got)
		}
	}
	if same, waited := p.yield(w, nil); same != w || waited != 0 {
		t.Error("yield with an empty queue waited, or changed the worker")
	}
	p.release(w)
	if p.inUse() != 0 || p.wanted() {
		t.Errorf("%d in use, %d wait", p.inUse(), p.waiting.Load())
	}
}

func TestWhoGivesUpWaitingIsPassedOver(t *testing.T) {
	p := testWorkers(1)
	w, _ := p.acquire(nil)
	done := make(chan struct{})
	results := make(chan *worker)
	for i := range 3 {
		go func() {
			w, _ := p.acquire(done)
			results <- w
		}()
		testutil.Eventually(t, "it waits", func() bool { return int(p.waiting.Load()) == i+1 })
	}
	close(done)
	for range 3 {
		if w := <-results; w != nil {
			t.Error("a worker that nobody had released")
		}
	}
	if p.wanted() {
		t.Error("who gave up still waits")
	}
	if same, _ := p.yield(w, done); same != w {
		t.Error("yield to those that gave up")
	}
	p.release(w)
	if again, waited := p.acquire(done); again != w || waited != 0 {
		t.Error("a free worker is not lent")
	}
}

// TestNoWorkerIsLost has goroutines that ask, yield, give back and give up at random, and then counts the workers.
func TestNoWorkerIsLost(t *testing.T) {
	p := testWorkers(2)
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 2000 {
				done := make(chan struct{})
				if i%3 == 0 {
					close(done)
				}
				w, _ := p.acquire(done)
				if w != nil && i%2 == 0 {
					w, _ = p.yield(w, done)
				}
				if w != nil {
					w.frames = append(w.frames, nil)[:0] // the race detector sees two holders of one worker
					p.release(w)
				}
			}
		}()
	}
	wg.Wait()
	if p.inUse() != 0 || p.wanted() || len(p.free) != 2 || p.free[0] == p.free[1] {
		t.Errorf("%d in use, %d wait, %d free", p.inUse(), p.waiting.Load(), len(p.free))
	}
}
