package client

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/doorbell"
	"github.com/hugebus/hugebus/internal/sys"
)

// newSleeper is a sleeper on a doorbell of its own, with the bell to ring and the
// count of missed wake-ups.
func newSleeper(t *testing.T, how Wait) (*sleeper, *doorbell.Bell, *atomic.Int64) {
	t.Helper()
	b, err := sys.MembarrierRegister()
	if err != nil {
		t.Fatal(err)
	}
	bell, err := doorbell.New()
	if err != nil {
		t.Fatal(err)
	}
	own, err := bell.Dup()
	if err != nil {
		t.Fatal(err)
	}
	missed := new(atomic.Int64)
	s := &sleeper{bell: own, word: new(atomic.Uint64), bit: 1 << 5, alone: true, global: b.Global, how: how, missed: func() { missed.Add(1) }}
	t.Cleanup(func() {
		s.close()
		bell.Close()
	})
	return s, bell, missed
}

// commit makes ready true and rings as a publisher does.
func commit(ready *atomic.Uint64, s *sleeper, bell *doorbell.Bell) {
	ready.Store(1)
	if s.word.Load() != 0 && s.word.Swap(0) != 0 {
		_ = bell.Ring()
	}
}

func TestEveryStrategyWakes(t *testing.T) {
	for _, how := range []Wait{WaitAdaptive, WaitSpin, WaitYield, WaitSleep} {
		t.Run(how.String(), func(t *testing.T) {
			s, bell, _ := newSleeper(t, how)
			for range 200 {
				var ready atomic.Uint64
				done := make(chan error, 1)
				go func() {
					done <- s.wait(context.Background(), time.Time{}, func() bool { return ready.Load() != 0 })
				}()
				commit(&ready, s, bell)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestSleeperSleepsPastItsFirstBound waits until the sleeper is in its unbounded sleep,
// which shows by its bit being set again after the bell's first deadline, and wakes it there.
func TestSleeperSleepsPastItsFirstBound(t *testing.T) {
	s, bell, missed := newSleeper(t, WaitSleep)
	var ready atomic.Uint64
	looks := make(chan struct{}, 4096)
	done := make(chan error, 1)
	go func() {
		done <- s.wait(context.Background(), time.Time{}, func() bool {
			select {
			case looks <- struct{}{}:
			default:
			}
			return ready.Load() != 0
		})
	}()
	// One look at entry, lookAfterBit and one in the first sleep, one after its bound,
	// and one in the second.
	for range 1 + lookAfterBit + 3 {
		<-looks
	}
	commit(&ready, s, bell)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if missed.Load() != 0 {
		t.Fatalf("%d missed wake-ups", missed.Load())
	}
}

// TestSleeperSetsItsBitOnceTheBellListens takes the bit, as a publisher of a later frame does, after the sleeper
// set it and before the bell notices rings: that ring is forgotten, so the bit must be set again.
func TestSleeperSetsItsBitOnceTheBellListens(t *testing.T) {
	s, _, _ := newSleeper(t, WaitSleep)
	const lastBefore = 1 + lookAfterBit // one look at entry, then those after the bit
	looks := 0
	err := s.wait(context.Background(), time.Time{}, func() bool {
		switch looks++; looks {
		case lastBefore:
			s.word.Swap(0)
		case lastBefore + 1, lastBefore + 3: // in the bounded sleep, and in the one without bound
			if s.word.Load()&s.bit == 0 {
				t.Errorf("look %d, before a sleep: nobody would ring for us", looks)
			}
		}
		return looks == lastBefore+3
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	for _, how := range []Wait{WaitAdaptive, WaitSpin, WaitYield, WaitSleep} {
		t.Run(how.String(), func(t *testing.T) {
			s, _, _ := newSleeper(t, how)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- s.wait(ctx, time.Time{}, func() bool { return false }) }()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatalf("wait: %v, want context.Canceled", err)
			}
			ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			if err := s.wait(ctx, time.Time{}, func() bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("wait: %v, want context.DeadlineExceeded", err)
			}
		})
	}
}

func TestWaitGoesOnAfterAnEarlierContextEnded(t *testing.T) {
	s, bell, _ := newSleeper(t, WaitSleep)
	for range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		cancelled := make(chan error, 1)
		go func() { cancelled <- s.wait(ctx, time.Time{}, func() bool { return false }) }()
		cancel()
		if err := <-cancelled; !errors.Is(err, context.Canceled) {
			t.Fatalf("wait: %v, want context.Canceled", err)
		}
		var ready atomic.Uint64
		done := make(chan error, 1)
		go func() {
			done <- s.wait(context.Background(), time.Time{}, func() bool { return ready.Load() != 0 })
		}()
		commit(&ready, s, bell)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestWaitEndsAtItsTime(t *testing.T) {
	for _, how := range []Wait{WaitAdaptive, WaitSpin, WaitYield, WaitSleep} {
		s, _, _ := newSleeper(t, how)
		err := s.wait(context.Background(), time.Now().Add(3*time.Millisecond), func() bool { return false })
		if err != errUntil {
			t.Fatalf("%v: %v, want errUntil", how, err)
		}
	}
}

func TestWaitEndsWhenTheBellIsClosed(t *testing.T) {
	s, _, _ := newSleeper(t, WaitSleep)
	done := make(chan error, 1)
	go func() { done <- s.wait(context.Background(), time.Time{}, func() bool { return false }) }()
	if err := s.bell.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Fatalf("wait: %v, want os.ErrClosed", err)
	}
}

func TestSleeperTakesItsBitBackWhenItFindsAFrame(t *testing.T) {
	s, _, _ := newSleeper(t, WaitSleep)
	looks := 0
	if err := s.wait(context.Background(), time.Time{}, func() bool { looks++; return looks > 2 }); err != nil {
		t.Fatal(err)
	}
	if w := s.word.Load(); w != 0 {
		t.Fatalf("sleepers %#x after a frame was found, want 0: the next publisher would ring for nobody", w)
	}
}

// TestPatientSleeper: at first it can be rung for by the patient's word only; after that it sleeps like the others.
func TestPatientSleeper(t *testing.T) {
	for _, rung := range []bool{true, false} {
		s, bell, _ := newSleeper(t, WaitSleep)
		s.patient = new(atomic.Uint64)
		var ready atomic.Bool
		done := make(chan error, 1)
		go func() { done <- s.wait(context.Background(), time.Time{}, ready.Load) }()
		word := s.word
		if rung {
			word = s.patient
		}
		for word.Load() == 0 {
			time.Sleep(time.Millisecond / 4)
		}
		if got := s.patient.Load(); !rung && got != 0 {
			t.Errorf("patient word %#x while it sleeps like the others", got)
		}
		ready.Store(true)
		word.Store(0)
		if err := bell.Ring(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := s.patient.Load(); got != 0 {
			t.Errorf("patient word %#x after the wait", got)
		}
	}
}

func TestParseWaitReadsWhatStringWrites(t *testing.T) {
	for _, how := range []Wait{WaitAdaptive, WaitSpin, WaitYield, WaitSleep} {
		if got, err := ParseWait(how.String()); err != nil || got != how {
			t.Errorf("ParseWait(%q) = %v, %v", how.String(), got, err)
		}
	}
	if _, err := ParseWait("nap"); err == nil || err.Error() != `client: unknown wait strategy "nap": use adaptive, spin, yield or sleep` {
		t.Errorf("ParseWait(nap): %v", err)
	}
}
