package doorbell_test

import (
	"errors"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/doorbell"
)

// never is a deadline for waits that must not end by it: only a hang makes a test see it.
func never() time.Time { return time.Now().Add(time.Minute) }

func newBell(t testing.TB) *doorbell.Bell {
	t.Helper()
	b, err := doorbell.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func dupBell(t testing.TB, b *doorbell.Bell) *doorbell.Bell {
	t.Helper()
	d, err := b.Dup()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func ring(t testing.TB, b *doorbell.Bell) {
	t.Helper()
	if err := b.Ring(); err != nil {
		t.Error(err)
	}
}

func TestWaitReturnsAtOnceWhenThereIsSomething(t *testing.T) {
	b := newBell(t)
	calls := 0
	rung, err := b.Wait(never(), func() bool { calls++; return true })
	if rung || err != nil || calls != 1 {
		t.Errorf("got %v, %v after %d looks", rung, err, calls)
	}
}

func TestRingAfterTheLookIsNotLost(t *testing.T) {
	b := newBell(t)
	other := dupBell(t, b)
	for range 1000 {
		calls := 0
		rung, err := b.Wait(never(), func() bool { calls++; ring(t, other); return false })
		if !rung || err != nil || calls != 1 {
			t.Fatalf("got %v, %v after %d looks", rung, err, calls)
		}
	}
}

func TestRingsBeforeTheWaitDoNotKeepItAwake(t *testing.T) {
	b := newBell(t)
	for range 3 {
		ring(t, b)
	}
	// A ring that the netpoller has not delivered yet may end one Wait early; but the counter, which stays above
	// zero, must not end every one of them, or sleeping would be spinning.
	for tries := 1; ; tries++ {
		_, err := b.Wait(time.Now().Add(5*time.Millisecond), nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if tries == 100 {
			t.Fatalf("the hundredth wait ended with %v", err)
		}
	}
}

func TestOneRingWakesEverySleeper(t *testing.T) {
	b := newBell(t)
	const sleepers = 1000
	started := pprof.Lookup("threadcreate").Count()
	var looked, done sync.WaitGroup
	looked.Add(sleepers)
	for range sleepers {
		s := dupBell(t, b)
		done.Go(func() {
			rung, err := s.Wait(time.Time{}, func() bool { looked.Done(); return false })
			if !rung || err != nil {
				t.Errorf("got %v, %v", rung, err)
			}
		})
	}
	looked.Wait()
	ring(t, b)
	done.Wait()
	// The runtime keeps the threads that it made, so this is the most that there were at any time.
	if n := pprof.Lookup("threadcreate").Count() - started; n > 50 {
		t.Errorf("%d sleepers took %d threads", sleepers, n)
	}
}

func TestDeadline(t *testing.T) {
	b := newBell(t)
	for _, deadline := range []time.Time{time.Now().Add(time.Millisecond), time.Now().Add(-time.Hour), time.Unix(1, 0)} {
		if rung, err := b.Wait(deadline, nil); rung || err != os.ErrDeadlineExceeded {
			t.Errorf("got %v, %v", rung, err)
		}
	}
	// A deadline is for one Wait only.
	if rung, err := b.Wait(time.Time{}, func() bool { ring(t, b); return false }); !rung || err != nil {
		t.Errorf("after a deadline: %v, %v", rung, err)
	}
	if rung, err := b.Wait(never(), func() bool { return true }); rung || err != nil {
		t.Errorf("with a new deadline: %v, %v", rung, err)
	}
}

func TestInterruptEndsTheRunningWait(t *testing.T) {
	b := newBell(t)
	looked := make(chan struct{})
	result := make(chan error)
	go func() {
		_, err := b.Wait(time.Time{}, func() bool { close(looked); return false })
		result <- err
	}()
	<-looked
	b.Interrupt()
	if err := <-result; err != os.ErrDeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

func TestInterruptHoldsUntilResume(t *testing.T) {
	b := newBell(t)
	b.Interrupt()
	for range 3 {
		called := false
		_, err := b.Wait(never(), func() bool { called = true; return true })
		if err != os.ErrDeadlineExceeded || called {
			t.Errorf("interrupted: %v, looked %v", err, called)
		}
	}
	b.Resume()
	for _, deadline := range []time.Time{{}, never()} {
		if rung, err := b.Wait(deadline, func() bool { ring(t, b); return false }); !rung || err != nil {
			t.Errorf("resumed: %v, %v", rung, err)
		}
	}
}

// An Interrupt at any moment of a Wait has to end it, also one that comes while the Wait sets its deadline.
func TestInterruptAtAnyMoment(t *testing.T) {
	b := newBell(t)
	for range 2000 {
		var wg sync.WaitGroup
		wg.Go(b.Interrupt)
		if _, err := b.Wait(never(), nil); err != os.ErrDeadlineExceeded {
			t.Fatalf("got %v", err)
		}
		wg.Wait()
		b.Resume()
	}
}

func TestCloseWhileWaiting(t *testing.T) {
	b := newBell(t)
	other := dupBell(t, b)
	looked := make(chan struct{})
	result := make(chan error)
	go func() {
		_, err := b.Wait(time.Time{}, func() bool { close(looked); return false })
		result <- err
	}()
	<-looked
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; err != os.ErrClosed {
		t.Errorf("got %v", err)
	}
	if rung, err := other.Wait(never(), func() bool { ring(t, other); return false }); !rung || err != nil {
		t.Errorf("another Bell of the same doorbell: %v, %v", rung, err)
	}
}

func TestClosedBell(t *testing.T) {
	b := newBell(t)
	for range 2 {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	for _, deadline := range []time.Time{{}, never(), time.Unix(1, 0)} {
		if _, err := b.Wait(deadline, func() bool { return true }); err != os.ErrClosed {
			t.Errorf("Wait: %v", err)
		}
	}
	if err := b.Ring(); err != os.ErrClosed {
		t.Errorf("Ring: %v", err)
	}
	if _, err := b.Dup(); err != os.ErrClosed {
		t.Errorf("Dup: %v", err)
	}
	b.Interrupt()
	b.Resume()
}

func TestOneWaitAtATime(t *testing.T) {
	b := newBell(t)
	_, err := b.Wait(never(), func() bool {
		_, inner := b.Wait(never(), func() bool { return true })
		if inner != doorbell.ErrBusy {
			t.Errorf("the second Wait: %v", inner)
		}
		return true
	})
	if err != nil {
		t.Errorf("the first Wait: %v", err)
	}
}

func TestRingIsSafeForConcurrentUse(t *testing.T) {
	b := newBell(t)
	waiter := dupBell(t, b)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				ring(t, b)
			}
		})
	}
	for range 1000 {
		if rung, err := waiter.Wait(never(), nil); !rung || err != nil {
			t.Errorf("got %v, %v", rung, err)
			break
		}
	}
	stop.Store(true)
	wg.Wait()
}

func TestCloseRacesWithRing(t *testing.T) {
	for range 200 {
		b, err := doorbell.New()
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if err := b.Ring(); err == os.ErrClosed {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func TestFromFileMakesABlockingDescriptorWatchable(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "blocking")
	b, err := doorbell.FromFile(f)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("FromFile left the file open: %v", err)
	}
	if rung, err := b.Wait(never(), func() bool { ring(t, b); return false }); !rung || err != nil {
		t.Errorf("got %v, %v", rung, err)
	}
}

func TestFromFileRefusesWhatIsNoEventFD(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, err = doorbell.FromFile(r)
	if err == nil || !strings.Contains(err.Error(), "and not an eventfd") {
		t.Errorf("pipe: %v", err)
	}
	if err := r.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("FromFile left the file open: %v", err)
	}
	if _, err := doorbell.FromFile(r); err == nil {
		t.Error("a closed file was taken")
	}
	if _, err := doorbell.FromFile(nil); err == nil {
		t.Error("no file was taken")
	}
}

func TestWaitAndRingAllocateNothing(t *testing.T) {
	b := newBell(t)
	yes := func() bool { return true }
	sleep := func() bool { ring(t, b); return false }
	for name, run := range map[string]func(){
		"Ring":              func() { ring(t, b) },
		"Wait, not blocked": func() { b.Wait(time.Time{}, yes) },
		"Wait, rung":        func() { b.Wait(time.Time{}, sleep) },
		"Wait, deadlines":   func() { b.Wait(never(), sleep) },
	} {
		// A garbage collection empties pools, and may do so during the run; it cannot explain one allocation a run.
		if n := testing.AllocsPerRun(1000, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkRing(b *testing.B) {
	bell := newBell(b)
	for b.Loop() {
		ring(b, bell)
	}
}

func BenchmarkWaitNotBlocked(b *testing.B) {
	bell := newBell(b)
	yes := func() bool { return true }
	for b.Loop() {
		if _, err := bell.Wait(time.Time{}, yes); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPingPong is sleep and wake, there and back, between two goroutines.
func BenchmarkPingPong(b *testing.B) {
	ping, pong := newBell(b), newBell(b)
	var turn atomic.Uint64
	var wg sync.WaitGroup
	wait := func(bell *doorbell.Bell, want uint64) bool {
		for turn.Load() < want {
			if _, err := bell.Wait(time.Time{}, func() bool { return turn.Load() >= want }); err != nil {
				return false
			}
		}
		return true
	}
	n := uint64(b.N)
	wg.Go(func() {
		for i := uint64(1); i <= n && wait(ping, 2*i-1); i++ {
			turn.Add(1)
			ring(b, pong)
		}
	})
	for i := uint64(1); i <= n; i++ {
		turn.Add(1)
		ring(b, ping)
		if !wait(pong, 2*i) {
			b.Fatal("closed")
		}
	}
	wg.Wait()
}
