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

func value(n int, k uint64) []uint64 {
	v := make([]uint64, n)
	for i := range v {
		v[i] = k
	}
	return v
}

func TestNewLatchRefusesWrongLengths(t *testing.T) {
	for _, n := range []int{0, 1, 2, 4, 16} {
		msg := panicText(func() { NewLatch(make([]atomic.Uint64, n)) })
		if !strings.Contains(msg, "use LatchWords") {
			t.Errorf("%d words: %q", n, msg)
		}
	}
	for n := 1; n < 9; n++ {
		if got := NewLatch(make([]atomic.Uint64, LatchWords(n))).Len(); got != n {
			t.Errorf("a latch of %d words has %d", n, got)
		}
	}
}

func TestLatchRefusesSlicesOfAnotherLength(t *testing.T) {
	l := NewLatch(make([]atomic.Uint64, LatchWords(4)))
	for _, f := range []func(){func() { l.Store(make([]uint64, 3)) }, func() { l.Load(make([]uint64, 5)) }} {
		if msg := panicText(f); !strings.Contains(msg, "for a value of 4") {
			t.Errorf("%q", msg)
		}
	}
	if l.Version() != 0 {
		t.Error("a refused store changed the version")
	}
}

// TestLatchModel stores and loads at random, from any version, with writers that die at any word in between.
func TestLatchModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "n")
		words := make([]atomic.Uint64, LatchWords(n))
		words[0].Store(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(math.MaxUint64-3, math.MaxUint64)).Draw(t, "version"))
		l := NewLatch(words)
		version, want := l.Version(), make([]uint64, n)
		src := rapid.SliceOfN(rapid.Uint64(), n, n)
		t.Repeat(map[string]func(*rapid.T){
			"store": func(t *rapid.T) {
				want = src.Draw(t, "src")
				version++
				l.Store(want)
			},
			"die": func(t *rapid.T) {
				l.dieAfter(rapid.IntRange(0, n).Draw(t, "words"), src.Draw(t, "src"))
			},
			"": func(t *rapid.T) {
				got := make([]uint64, n)
				v, ok := l.Load(got)
				if !ok || v != version || !slices.Equal(got, want) {
					t.Fatalf("Load: %v, version %d, %v; want %v, version %d", got, v, ok, want, version)
				}
			},
		})
	})
}

// dieAfter is Store by a writer that dies after k words: Store's own steps, as far as they came.
func (l Latch) dieAfter(k int, src []uint64) { copyIn(l.half(l.Version() + 1)[:k], src[:k]) }

func TestLatchWriterThatDiesAtAnyWordBlocksNobody(t *testing.T) {
	const n = 6
	for k := range n + 1 {
		for version := range uint64(2) {
			words := make([]atomic.Uint64, LatchWords(n))
			words[0].Store(version)
			l := NewLatch(words)
			l.Store(value(n, 7))
			l.dieAfter(k, value(n, 8))
			got := make([]uint64, n)
			if v, ok := l.Load(got); !ok || v != version+1 || !slices.Equal(got, value(n, 7)) {
				t.Fatalf("died after %d words: %v, version %d, %v", k, got, v, ok)
			}
			l.Store(value(n, 9))
			if v, ok := l.Load(got); !ok || v != version+2 || !slices.Equal(got, value(n, 9)) {
				t.Fatalf("next writer after one that died at %d words: %v, version %d, %v", k, got, v, ok)
			}
		}
	}
}

func TestLatchReadersSeeWholeValuesInOrder(t *testing.T) {
	const n, rounds = 5, 20_000
	for _, m := range memories(t, LatchWords(n)) {
		t.Run(m.name, func(t *testing.T) {
			l := NewLatch(m.words)
			var readers sync.WaitGroup
			for range 3 {
				readers.Go(func() {
					got := make([]uint64, n)
					for last := uint64(0); last < rounds; {
						v, ok := l.Load(got)
						if !ok { // a whole store came in between, every time
							yield()
							continue
						}
						if v < last || !slices.Equal(got, value(n, v)) {
							t.Errorf("version %d after %d is %v", v, last, got)
							return
						}
						last = v
					}
				})
			}
			for v := uint64(1); v <= rounds; v++ {
				l.Store(value(n, v))
			}
			readers.Wait()
		})
	}
}

// TestLatchVersionThatNeverStandsStill is hostile memory: the version changes during every load, and Load gives up. The
// destination overlaps the latch, so that each try itself moves another even number into the version.
func TestLatchVersionThatNeverStandsStill(t *testing.T) {
	const n = 2 * maxTries
	words := make([]atomic.Uint64, LatchWords(n))
	for i := range words {
		words[i].Store(uint64(2 * i))
	}
	if v, ok := NewLatch(words).Load(plain(words)[:n]); ok {
		t.Fatalf("ok at version %d, which moved", v)
	}
	if v := words[0].Load(); v != 2*maxTries {
		t.Fatalf("version moved to %d in %d tries", v, maxTries)
	}
}

func TestLatchAllocatesNothing(t *testing.T) {
	words, src, dst := make([]atomic.Uint64, LatchWords(8)), make([]uint64, 8), make([]uint64, 8)
	if n := testing.AllocsPerRun(100, func() {
		l := NewLatch(words)
		l.Store(src)
		l.Load(dst)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
