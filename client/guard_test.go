package client

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hugebus/hugebus/internal/sys"
)

func newGuard(t *testing.T, private bool) (*guard, *atomic.Int32) {
	t.Helper()
	if private {
		b, err := sys.MembarrierRegister()
		if err != nil {
			t.Fatal(err)
		}
		if !b.Private {
			t.Skip("this kernel has no membarrier(PRIVATE_EXPEDITED)")
		}
	}
	g, released := new(guard), new(atomic.Int32)
	g.init(private, func() { released.Add(1) })
	return g, released
}

func TestGuardReleasesOnceWhenTheLastOneLeaves(t *testing.T) {
	for _, private := range []bool{false, true} {
		g, released := newGuard(t, private)
		if err := g.enter(); err != nil {
			t.Fatal(err)
		}
		if !g.close() {
			t.Fatal("first close says that it was closed before")
		}
		if released.Load() != 0 {
			t.Fatal("released while somebody is inside")
		}
		g.exit()
		if released.Load() != 1 {
			t.Fatalf("released %d times when the last one left, want 1", released.Load())
		}
		if err := g.enter(); !errors.Is(err, os.ErrClosed) {
			t.Fatalf("enter after close: %v, want os.ErrClosed", err)
		}
		if g.close() {
			t.Fatal("second close says that it closed")
		}
		if released.Load() != 1 {
			t.Fatalf("released %d times, want 1", released.Load())
		}
	}
}

func TestGuardReleasesAtCloseWhenNobodyIsInside(t *testing.T) {
	g, released := newGuard(t, true)
	if err := g.enter(); err != nil {
		t.Fatal(err)
	}
	g.exit()
	g.close()
	if released.Load() != 1 {
		t.Fatalf("released %d times, want 1", released.Load())
	}
}

func TestGuardRefusesASecondUser(t *testing.T) {
	g, _ := newGuard(t, false)
	if err := g.enter(); err != nil {
		t.Fatal(err)
	}
	if err := g.enter(); !errors.Is(err, ErrInUse) {
		t.Fatalf("second enter: %v, want ErrInUse", err)
	}
	g.exit()
	if err := g.enter(); err != nil {
		t.Fatal(err)
	}
}

// TestGuardNeverReleasesUnderAUser races closing against using: inside, what is guarded
// must still be there.
func TestGuardNeverReleasesUnderAUser(t *testing.T) {
	for range 2000 {
		b, err := sys.MembarrierRegister()
		if err != nil {
			t.Fatal(err)
		}
		var there, violations, released atomic.Int32
		there.Store(1)
		g := new(guard)
		g.init(b.Private, func() { there.Store(0); released.Add(1) })
		var start, done sync.WaitGroup
		start.Add(2)
		done.Add(2)
		go func() {
			defer done.Done()
			start.Done()
			start.Wait()
			for g.enter() == nil {
				if there.Load() == 0 {
					violations.Add(1)
				}
				g.exit()
			}
		}()
		go func() {
			defer done.Done()
			start.Done()
			start.Wait()
			g.close()
		}()
		done.Wait()
		if violations.Load() != 0 || released.Load() != 1 {
			t.Fatalf("%d uses after release, released %d times", violations.Load(), released.Load())
		}
	}
}
