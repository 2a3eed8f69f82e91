package seqlock

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

func newLock(n int) (Lock, *Counter) {
	c := new(Counter)
	return NewLock(c, make([]atomic.Uint64, n)), c
}

// TestLockModel drives a lock with random calls by random writers, some of which die while they hold it.
func TestLockModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 3
		l, c := newLock(n)
		// An even word with anything in the holder's bits is a free lock: hostile or not.
		c.v.Store(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(seqMask-3, seqMask), rapid.Just(uint64(math.MaxUint64))).
			Draw(t, "start") &^ 1)
		holder, want := -1, make([]uint64, n)
		writer := rapid.OneOf(rapid.IntRange(0, 3), rapid.Just(math.MaxUint16))
		src := rapid.SliceOfN(rapid.Uint64(), n, n)
		t.Repeat(map[string]func(*rapid.T){
			"lock": func(t *rapid.T) {
				w := writer.Draw(t, "writer")
				if got := l.TryLock(uint16(w)); got != (holder < 0) {
					t.Fatalf("TryLock(%d) = %v with holder %d", w, got, holder)
				} else if got {
					holder = w
				}
			},
			"unlock": func(t *rapid.T) {
				w := writer.Draw(t, "writer")
				if w == holder {
					want = src.Draw(t, "src")
					copyIn(l.Words(), want)
				}
				if got := l.Unlock(uint16(w)); got != (holder == w) {
					t.Fatalf("Unlock(%d) = %v with holder %d", w, got, holder)
				} else if got {
					holder = -1
				}
			},
			"store": func(t *rapid.T) {
				w, s := writer.Draw(t, "writer"), src.Draw(t, "src")
				if got := l.TryStore(uint16(w), s); got != (holder < 0) {
					t.Fatalf("TryStore(%d) = %v with holder %d", w, got, holder)
				} else if got {
					want = s
				}
			},
			"takeover": func(t *rapid.T) {
				dead, w := writer.Draw(t, "dead"), writer.Draw(t, "writer")
				if got := l.TakeOver(uint16(dead), uint16(w)); got != (holder == dead) {
					t.Fatalf("TakeOver(%d, %d) = %v with holder %d", dead, w, got, holder)
				} else if got {
					holder = w
				}
			},
			"reset": func(t *rapid.T) {
				dead, w, s := writer.Draw(t, "dead"), writer.Draw(t, "writer"), src.Draw(t, "src")
				if got := l.Reset(uint16(dead), uint16(w), s); got != (holder == dead) {
					t.Fatalf("Reset(%d, %d) = %v with holder %d", dead, w, got, holder)
				} else if got {
					holder, want = -1, s
				}
			},
			"": func(t *rapid.T) {
				if o, locked := l.Holder(); locked != (holder >= 0) || locked && int(o) != holder {
					t.Fatalf("Holder says %d, %v; it is %d", o, locked, holder)
				}
				got := make([]uint64, n)
				if _, ok := l.Load(got); ok != (holder < 0) || ok && !slices.Equal(got, want) {
					t.Fatalf("Load: %v, %v; want %v, holder %d", got, ok, want, holder)
				}
			},
		})
	})
}

func TestLockWhoseHolderDiesAtAnyWordIsRecovered(t *testing.T) {
	const n, dead, repairer = 4, 3, 9
	for k := range n + 1 {
		l, _ := newLock(n)
		l.TryStore(1, value(n, 7))
		before, _ := l.Load(make([]uint64, n))
		if !l.TryLock(dead) {
			t.Fatal("a free lock refused")
		}
		copyIn(l.Words()[:k], value(k, 8)) // and here it dies
		if _, ok := l.Load(make([]uint64, n)); ok {
			t.Fatalf("after %d words of a dead writer a load says ok", k)
		}
		if who, locked := l.Holder(); !locked || who != dead {
			t.Fatalf("holder %d, %v", who, locked)
		}
		if l.TryStore(2, value(n, 1)) {
			t.Fatal("a second writer got in")
		}
		if l.Reset(repairer, repairer, value(n, 1)) {
			t.Fatal("reset after somebody who does not hold the lock")
		}
		if !l.Reset(dead, repairer, value(n, 9)) {
			t.Fatal("the repair was refused")
		}
		got := make([]uint64, n)
		if v, ok := l.Load(got); !ok || v == before || !slices.Equal(got, value(n, 9)) {
			t.Fatalf("after repair: %v, version %d, %v", got, v, ok)
		}
		if l.Unlock(dead) {
			t.Fatal("one thought dead, and taken over, freed the lock")
		}
	}
}

// TestLockRepairerThatDiesTooIsTakenOver: TakeOver leaves no instant in which the half-written value can be read.
func TestLockRepairerThatDiesTooIsTakenOver(t *testing.T) {
	l, _ := newLock(2)
	l.TryLock(1)
	l.TakeOver(1, 2)
	if _, ok := l.Load(make([]uint64, 2)); ok {
		t.Fatal("readable while the repairer has not written")
	}
	if !l.Reset(2, 3, value(2, 5)) {
		t.Fatal("the second repairer was refused")
	}
	got := make([]uint64, 2)
	if _, ok := l.Load(got); !ok || !slices.Equal(got, value(2, 5)) {
		t.Fatalf("%v, %v", got, ok)
	}
}

func TestLockWritersExcludeEachOther(t *testing.T) {
	const n, writers, each = 4, 3, 5_000
	for _, m := range memories(t, 1+n) {
		t.Run(m.name, func(t *testing.T) {
			l := NewLock(m.counter(), m.words[1:])
			var all, readers sync.WaitGroup
			for w := range uint16(writers) {
				all.Go(func() {
					for i := 0; i < each; {
						if !l.TryLock(w) {
							yield()
							continue
						}
						k := l.Words()[0].Load() + 1 // a lost update would show in the sum
						copyIn(l.Words(), value(n, k))
						if !l.Unlock(w) {
							t.Errorf("writer %d lost the lock", w)
							return
						}
						i++
					}
				})
			}
			var done atomic.Bool
			for range 2 {
				readers.Go(func() {
					got := make([]uint64, n)
					for last := uint64(0); !done.Load(); {
						if _, ok := l.Load(got); !ok {
							yield()
							continue
						}
						if got[0] < last || !slices.Equal(got, value(n, got[0])) {
							t.Errorf("%v after %d", got, last)
							return
						}
						last = got[0]
					}
				})
			}
			all.Wait()
			done.Store(true)
			readers.Wait()
			got := make([]uint64, n)
			if _, ok := l.Load(got); !ok || got[0] != writers*each {
				t.Fatalf("%v, %v; want %d", got, ok, writers*each)
			}
		})
	}
}

func TestLockThatIsOddForEver(t *testing.T) {
	for _, v := range []uint64{1, 3, seqMask, math.MaxUint64, 1<<ownerShift | 1} {
		l, c := newLock(2)
		c.v.Store(v)
		if _, ok := l.Load(make([]uint64, 2)); ok {
			t.Errorf("%#x: load says ok", v)
		}
		if l.TryLock(0) || l.TryStore(0, value(2, 1)) {
			t.Errorf("%#x: a writer got in", v)
		}
		who, locked := l.Holder()
		if !locked || !l.Reset(who, 5, value(2, 6)) {
			t.Errorf("%#x: not recovered", v)
		}
		if _, ok := l.Load(make([]uint64, 2)); !ok {
			t.Errorf("%#x: not readable after the repair", v)
		}
	}
}

func TestLockRefusesSlicesOfAnotherLength(t *testing.T) {
	l, _ := newLock(4)
	for _, f := range []func(){
		func() { l.TryStore(1, make([]uint64, 3)) },
		func() { l.Load(make([]uint64, 5)) },
		func() { l.Reset(1, 1, nil) },
	} {
		if msg := panicText(f); !strings.Contains(msg, "for a value of 4") {
			t.Errorf("%q", msg)
		}
	}
	if _, locked := l.Holder(); locked {
		t.Error("a refused store left the lock held")
	}
}

func TestLockAllocatesNothing(t *testing.T) {
	var c Counter
	words, src, dst := make([]atomic.Uint64, 8), make([]uint64, 8), make([]uint64, 8)
	if n := testing.AllocsPerRun(100, func() {
		l := NewLock(&c, words)
		l.TryStore(1, src)
		l.Load(dst)
		l.TryLock(2)
		l.Reset(2, 3, src)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
