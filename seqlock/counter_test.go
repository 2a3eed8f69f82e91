package seqlock

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestCounterModel compares a counter with two booleans' worth of truth under random calls, from any starting value.
func TestCounterModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Counter
		c.v.Store(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(math.MaxUint64-3, math.MaxUint64)).Draw(t, "start"))
		writing := c.v.Load()&1 == 1
		step := func(name string, odd bool, do func()) {
			before := c.Read()
			if v, ok := c.ReadBegin(); v != before || ok == writing || ok != Even(v) {
				t.Fatalf("%s: ReadBegin says %#x, %v; counter %#x, writing %v", name, v, ok, before, writing)
			}
			do()
			if after := c.Read(); after == before || Even(after) == odd {
				t.Fatalf("%s: %#x became %#x", name, before, after)
			}
			if !c.ReadRetry(before) {
				t.Fatalf("%s: a read begun before it need not be repeated", name)
			}
			writing = odd
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(*rapid.T) { step("Begin", true, c.Begin) },
			"end":   func(*rapid.T) { step("End", false, c.End) },
			"reset": func(t *rapid.T) {
				if !writing {
					before := c.Read()
					if c.Reset() || c.Read() != before {
						t.Fatal("Reset of a counter at rest did something")
					}
					return
				}
				step("Reset", false, func() {
					if !c.Reset() {
						t.Fatal("Reset of an odd counter says that it was even")
					}
				})
			},
			"quiet": func(t *rapid.T) {
				if v, _ := c.ReadBegin(); c.ReadRetry(v) {
					t.Fatal("a read with nothing in between must be repeated")
				}
			},
		})
	})
}

// TestCounterReadersNeverSeeHalfAChange is the litmus test: a pair of words that always sum to nought outside a change.
func TestCounterReadersNeverSeeHalfAChange(t *testing.T) {
	for _, m := range memories(t, 3) {
		t.Run(m.name, func(t *testing.T) {
			c, a, b := m.counter(), &m.words[1], &m.words[2]
			var done atomic.Bool
			var readers sync.WaitGroup
			good := make([]int, 3)
			for r := range good {
				readers.Go(func() {
					for last := uint64(0); !done.Load() || good[r] == 0; {
						v, ok := c.ReadBegin()
						if !ok {
							continue
						}
						x, y := a.Load(), b.Load()
						if c.ReadRetry(v) {
							continue
						}
						if x+y != 0 || x < last {
							t.Errorf("saw %d and %d after %d", x, y, last)
							return
						}
						last = x
						good[r]++
					}
				})
			}
			for i := range uint64(20_000) {
				c.Begin()
				a.Store(i)
				b.Store(-i)
				c.End()
			}
			done.Store(true)
			readers.Wait()
		})
	}
}

// TestCounterBeginIsAFullFence is the litmus test of joining (store buffering): the writer makes the counter odd and
// then reads the cursor, the joiner writes the cursor and then reads the counter. Both seeing the old value is the one
// forbidden outcome.
func TestCounterBeginIsAFullFence(t *testing.T) {
	for _, m := range memories(t, 64) {
		t.Run(m.name, func(t *testing.T) {
			c, cursor := m.counter(), &m.words[32]
			start, end := newBarrier(2), newBarrier(2)
			const rounds = 500 // each costs some scheduling on a machine that is busy
			sawCursor := make([]bool, rounds)
			var joiner sync.WaitGroup
			joiner.Go(func() {
				for i := range rounds {
					start.wait()
					cursor.Swap(1) // as joining does, by arch.StoreFence
					_, even := c.ReadBegin()
					end.wait()
					if even && !sawCursor[i] {
						t.Errorf("round %d: the writer missed the cursor and the joiner missed the writer", i)
					}
					cursor.Store(0)
				}
			})
			for i := range rounds {
				start.wait()
				c.Begin()
				sawCursor[i] = cursor.Load() == 1
				end.wait()
				c.End()
			}
			joiner.Wait()
		})
	}
}

func TestCounterAllocatesNothing(t *testing.T) {
	var c Counter
	if n := testing.AllocsPerRun(100, func() {
		c.Begin()
		c.End()
		v, _ := c.ReadBegin()
		c.ReadRetry(v)
		c.Reset()
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// barrier lets n goroutines meet again and again, by spinning, so that they leave it at about the same instant.
type barrier struct {
	n       int64
	arrived atomic.Int64
}

func newBarrier(n int64) *barrier { return &barrier{n: n} }

func (b *barrier) wait() {
	all := ((b.arrived.Add(1)-1)/b.n + 1) * b.n
	for i := 1; b.arrived.Load() < all; i++ {
		if i%1000 == 0 {
			yield()
		}
	}
}
