package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/doorbell"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/sys"
)

// A Wait says how somebody waits for frames, or for room. The zero value is WaitAdaptive.
type Wait uint8

const (
	// WaitAdaptive spins for some microseconds, yields, and then sleeps on the
	// topic's doorbell. Nobody burns a core at idle.
	WaitAdaptive Wait = iota
	// WaitSpin never stops looking: the lowest latency, for a core that is free. It lets other goroutines run every few milliseconds only.
	WaitSpin
	// WaitYield looks, and lets other goroutines run in between.
	WaitYield
	// WaitSleep sleeps at once: the least CPU time, for streams where some 25 µs do
	// not matter.
	WaitSleep
)

// String is the strategy's name: adaptive, spin, yield or sleep.
func (w Wait) String() string {
	switch w {
	case WaitAdaptive:
		return "adaptive"
	case WaitSpin:
		return "spin"
	case WaitYield:
		return "yield"
	case WaitSleep:
		return "sleep"
	}
	return fmt.Sprintf("wait(%d)", uint8(w))
}

// ParseWait is the strategy with this name.
func ParseWait(name string) (Wait, error) {
	for w := WaitAdaptive; w <= WaitSleep; w++ {
		if w.String() == name {
			return w, nil
		}
	}
	return 0, fmt.Errorf("client: unknown wait strategy %q: use adaptive, spin, yield or sleep", name)
}

// Failpoints of sleeping.
const (
	FailSleepAfterBit = "client/sleep/after-bit"
	FailSleepUnbound  = "client/sleep/unbounded"
	FailSleepArmed    = "client/sleep/armed" // every ring is noticed from here on
	FailSleepWoken    = "client/sleep/woken"
)

const (
	// spinLooks and spinPause bound the spinning of WaitAdaptive to some 10 µs.
	spinLooks = 128
	spinPause = 2
	// yieldLooks bounds the yielding that follows.
	yieldLooks = 8
	// lookAfterBit times lookPause is some 5 µs: longer than a store buffer holds a
	// commit whose line is still on its way (0.4 µs between cores).
	lookAfterBit = 64
	lookPause    = 4
	// firstSleep bounds the sleep that no membarrier has made safe.
	firstSleep = 10 * time.Millisecond
	// bideFor bounds how long who waits for room waits for more than it needs.
	bideFor = 10 * time.Millisecond
	// ctxEvery is how many looks may pass between two at the context.
	ctxEvery = 256
	// giveEvery is how many may pass before WaitSpin lets other goroutines run: some milliseconds. For a goroutine with a thread
	// to itself (runtime.LockOSThread) each time means two switches of threads, tens of microseconds.
	giveEvery = 1 << 17
)

// A sleeper waits, for one goroutine at a time, until something in shared memory is
// there: frames, or room.
//
// Sleeping costs the awake side a load of a word that stays in its cache, and no fence
// (design: docs/architecture.md, "Waiting"). So a commit can still be in its store
// buffer when we set our bit and look: SYNC(sleep). We look for longer than a store
// buffer holds, then sleep bounded, and only after a membarrier, which settles the
// order for good, without a bound. Checked by docs/model/sleep.pml.
type sleeper struct {
	bell   *doorbell.Bell // our own descriptor of the topic's doorbell
	word   *atomic.Uint64 // sleeper bitmap
	bit    uint64
	alone  bool // the bit is ours alone, so we may clear it
	global bool // membarrier can settle the order
	fenced bool // the other side fences its commits: nothing to settle
	how    Wait
	missed func() // counts a missed wake-up
	// patient, if it is not nil, is the bitmap of those who would rather wait for more than they need, for bideFor at most.
	patient *atomic.Uint64

	ready  func() bool // of the wait that runs
	settle bool        // arm calls membarrier
	failed error       // what that returned
	armed  func() bool // arm, made once
	bided  func() bool // what bide arms with, made once

	done <-chan struct{} // whose closing interrupts the bell
	stop func() bool
}

// sleeper waits on bell, with a descriptor of its own, until its close. slots is how
// many share the sleepers' word.
func (a *attachment) sleeper(bell *doorbell.Bell, word *atomic.Uint64, slots int, how Wait, missed func()) (sleeper, error) {
	own, err := bell.Dup()
	if err != nil {
		return sleeper{}, fmt.Errorf("client: attach %s: %w", a.topic, err)
	}
	return sleeper{
		bell: own, word: word, bit: 1 << (a.slot % 64), alone: slots <= 64,
		global: a.barriers.Global, fenced: a.ring.Config().Fenced, how: how, missed: missed,
	}, nil
}

// errUntil means that the time given to wait has passed.
var errUntil = errors.New("client: time to look again")

// wait blocks until ready returns true, ctx ends (its error), until has passed
// (errUntil; zero: no bound), or the bell is closed (os.ErrClosed).
func (s *sleeper) wait(ctx context.Context, until time.Time, ready func() bool) error {
	if ready() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	switch s.how {
	case WaitSpin, WaitYield:
		return s.look(ctx, until, ready)
	case WaitAdaptive:
		for range spinLooks {
			arch.Pause(spinPause)
			if ready() {
				return nil
			}
		}
		for range yieldLooks {
			runtime.Gosched()
			if ready() {
				return nil
			}
		}
	}
	return s.sleep(ctx, until, ready)
}

// look is wait without sleeping.
func (s *sleeper) look(ctx context.Context, until time.Time, ready func() bool) error {
	yields := s.how == WaitYield
	for n := 1; ; n++ {
		if yields {
			runtime.Gosched()
		} else {
			arch.Pause(1)
		}
		if ready() {
			return nil
		}
		if n%ctxEvery != 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !until.IsZero() && time.Now().After(until) {
			return errUntil
		}
		if n%giveEvery == 0 {
			runtime.Gosched() // the goroutine that closes us may need this processor
		}
	}
}

func (s *sleeper) sleep(ctx context.Context, until time.Time, ready func() bool) error {
	s.watch(ctx)
	s.ready = ready
	if s.armed == nil {
		s.armed = s.arm
		s.bided = func() bool {
			s.patient.Or(s.bit)
			return s.ready()
		}
	}
	if s.patient != nil {
		if done, err := s.bide(ctx, until); done {
			return err
		}
	}
	bounded := !s.fenced
	for {
		s.word.Or(s.bit) // SYNC(sleep): release, a full fence
		failpoint.Hit(FailSleepAfterBit)
		deadline := until
		if bounded {
			if s.lookOn(ready) {
				s.up()
				return nil
			}
			if end := time.Now().Add(firstSleep); until.IsZero() || end.Before(until) {
				deadline = end
			}
		} else {
			failpoint.Hit(FailSleepUnbound)
		}
		s.settle, s.failed = !bounded && !s.fenced, nil
		rung, err := s.bell.Wait(deadline, s.armed)
		failpoint.Hit(FailSleepWoken)
		if s.failed != nil {
			s.up()
			return fmt.Errorf("client: sleep: %w", s.failed)
		}
		switch {
		case err == nil && !rung, err == nil && ready():
			if !rung {
				s.up()
			}
			return nil
		case err == nil:
			bounded = !s.fenced // rung for somebody else: the bit was taken, so begin again
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		default:
			if err := s.expired(ctx, until, deadline); err != nil {
				s.up()
				return err
			}
			if ready() {
				// A ring that is on its way took the bit; if nobody has, none is.
				if bounded && s.word.Load()&s.bit != 0 {
					s.missed()
				}
				s.up()
				return nil
			}
			bounded = !s.fenced && !s.global // without membarrier every sleep stays bounded
		}
	}
}

// bide sleeps until much is there, and reports whether it is there, or the wait is over. Who is woken for each frame's room that a reader
// makes goes to sleep again after as many frames, and takes the processor from the reader each time. Nothing here need be exact:
// what is missed costs bideFor, once.
func (s *sleeper) bide(ctx context.Context, until time.Time) (done bool, err error) {
	for {
		deadline := time.Now().Add(bideFor)
		if !until.IsZero() && until.Before(deadline) {
			deadline = until
		}
		_, err := s.bell.Wait(deadline, s.bided)
		if s.alone {
			s.patient.And(^s.bit)
		}
		switch {
		case err == nil && s.ready():
			return true, nil
		case err == nil: // others were faster
			if err := s.expired(ctx, until, time.Time{}); err != nil {
				return true, err
			}
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return true, err
		default:
			err := s.expired(ctx, until, deadline)
			return err != nil || s.ready(), err
		}
	}
}

// arm is what the bell calls as soon as it will notice every ring. A ring before that
// is forgotten, and who rang took our bit, perhaps for a frame behind the one that we
// wait for: so the bit is set again, and the order settled, only now. Twin EARLYBIT of
// docs/model/sleep.pml shows the wake-up that is lost otherwise.
func (s *sleeper) arm() bool {
	s.word.Or(s.bit) // SYNC(sleep): release, a full fence
	if s.settle {
		if s.failed = sys.MembarrierGlobal(); s.failed != nil {
			return true
		}
	}
	failpoint.Hit(FailSleepArmed)
	return s.ready()
}

// lookOn keeps looking for longer than a store buffer can hold a commit.
func (s *sleeper) lookOn(ready func() bool) bool {
	for range lookAfterBit {
		if ready() {
			return true
		}
		arch.Pause(lookPause)
	}
	return false
}

// up takes our bit back, so that nobody rings for us, if no other slot shares it.
func (s *sleeper) up() {
	if s.alone && s.word.Load()&s.bit != 0 {
		s.word.And(^s.bit)
	}
}

// expired says why the bell's wait ran out: an error for the caller, or nil to go on.
func (s *sleeper) expired(ctx context.Context, until, deadline time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := time.Now()
	if !until.IsZero() && !now.Before(until) {
		return errUntil
	}
	if deadline.IsZero() || now.Before(deadline) {
		s.bell.Resume() // another context, of an earlier wait, ended just now
	}
	return nil
}

// watch makes the end of ctx end a wait on the bell. It stays for the next wait with
// the same context, so that a loop pays for it once.
func (s *sleeper) watch(ctx context.Context) {
	if s.done == ctx.Done() {
		return
	}
	s.unwatch()
	if s.done = ctx.Done(); s.done != nil {
		s.stop = context.AfterFunc(ctx, s.bell.Interrupt)
	}
}

// interrupt makes a wait look once more, from any goroutine: its ready says why.
func (s *sleeper) interrupt() { s.bell.Interrupt() }

// close ends the sleeper's use.
func (s *sleeper) close() {
	s.unwatch()
	_ = s.bell.Close()
}

func (s *sleeper) unwatch() {
	if s.stop != nil {
		s.stop()
	}
	s.done, s.stop = nil, nil
	s.bell.Resume()
}
