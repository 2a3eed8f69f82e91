package arch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// A litmus test runs two threads on two words, many times over, and counts outcomes. The
// words are lines apart, as those that publishers and readers share. Each round stores a
// value of its own, so nothing has to be put back between rounds.
type words struct {
	x atomic.Uint64
	_ [FalseSharing]byte
	y atomic.Uint64
	_ [FalseSharing]byte
}

const rounds = 100_000

// side is one thread's part of a round: it stores round, and reports which of the other
// side's stores of this round it saw.
type side func(w *words, round uint64) (first, second bool)

// litmus runs both sides at the same time and counts what they saw.
func litmus(left, right side) map[[4]bool]int {
	ws := make([]words, 64)
	results := make([][4]bool, rounds)
	var at [2]struct {
		atomic.Uint64
		_ [FalseSharing]byte
	}
	run := func(me int, fn side) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for i := range uint64(rounds) {
			at[me].Store(i + 1)
			for spins := 0; at[1-me].Load() <= i; spins++ {
				if spins > 500 {
					runtime.Gosched() // the other side may have no core
				}
			}
			// Shift the two sides against each other, a little further each round.
			delay := i % 31
			if me == 1 {
				delay = i / 31 % 31
			}
			for range delay {
				_ = at[me].Load()
			}
			results[i][2*me], results[i][2*me+1] = fn(&ws[i%64], i+1)
		}
	}
	var both sync.WaitGroup
	both.Go(func() { run(0, left) })
	both.Go(func() { run(1, right) })
	both.Wait()
	seen := map[[4]bool]int{}
	for _, r := range results {
		seen[r]++
	}
	return seen
}

// passed counts what the right-hand side of a message passing saw: the second store of
// the left without the first is forbidden.
func passed(t *testing.T, writer, reader side) {
	t.Helper()
	seen := litmus(writer, reader)
	count := func(first, second bool) int { return seen[[4]bool{false, false, first, second}] }
	t.Logf("neither %d, first only %d, both %d; second only, which is forbidden, %d",
		count(false, false), count(true, false), count(true, true), count(false, true))
	if n := count(false, true); n != 0 {
		t.Errorf("the second store was seen without the first %d times", n)
	}
	if count(false, false)+count(true, false) == 0 || count(true, true) == 0 {
		t.Log("the two sides hardly met: this machine is too busy to say much")
	}
}

// TestMessagePassing: who sees the second store sees the first. That is what a commit
// is: the header, then the stamp (SYNC(commit)); and a cursor, and an intent.
func TestMessagePassing(t *testing.T) {
	passed(t,
		func(w *words, round uint64) (bool, bool) {
			StoreRelease(&w.x, round)
			StoreRelease(&w.y, round)
			return false, false
		},
		func(w *words, round uint64) (bool, bool) {
			y := w.y.Load()
			x := w.x.Load()
			return x == round, y == round
		})
}

// TestStoreBuffering: with full fences no two threads both miss the other's store, which
// the joiner and the refreshing publisher rely on (SYNC(join-limit)). With release
// stores they may, which is why sleeping needs more than that (SYNC(sleep)): how often is
// logged, not asserted, since a processor need not show it.
func TestStoreBuffering(t *testing.T) {
	both := func(store func(p *atomic.Uint64, v uint64)) (missed int) {
		seen := litmus(
			func(w *words, round uint64) (bool, bool) {
				store(&w.x, round)
				return false, w.y.Load() == round
			},
			func(w *words, round uint64) (bool, bool) {
				store(&w.y, round)
				return w.x.Load() == round, false
			})
		return seen[[4]bool{}]
	}
	if n := both(func(p *atomic.Uint64, v uint64) { p.Store(v) }); n != 0 {
		t.Errorf("fenced stores: both sides missed the other's %d times", n)
	}
	if n := both(StoreFence); n != 0 {
		t.Errorf("StoreFence: both sides missed the other's %d times", n)
	}
	n := both(StoreRelease)
	t.Logf("release stores: both sides missed the other's %d of %d times (allowed)", n, rounds)
	if !Assembly && n != 0 {
		t.Errorf("this build stores by sync/atomic, which does not allow it")
	}
}
