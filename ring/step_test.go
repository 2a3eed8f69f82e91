//go:build failpoint

package ring

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/failpoint"
)

// The real code, stepped from failpoint to failpoint, in every order, with death at every
// failpoint. search_test.go goes through more states with finer steps; this is to show
// that the code makes the steps that those are.

// choices enumerates: each run takes the next way through its decisions.
type choices struct {
	path, of []int
	at       int
}

func (c *choices) pick(n int) int {
	if c.at == len(c.path) {
		c.path, c.of = append(c.path, 0), append(c.of, n)
	}
	c.at++
	return c.path[c.at-1]
}

// next prepares the next run, and is false when there is none.
func (c *choices) next() bool {
	c.at = 0
	for i := len(c.path) - 1; i >= 0; i-- {
		if c.path[i]++; c.path[i] < c.of[i] {
			c.path, c.of = c.path[:i+1], c.of[:i+1]
			return true
		}
	}
	return false
}

// errKilled is what a goroutine panics with that dies at a failpoint.
var errKilled = errors.New("killed")

// stepper runs a function from failpoint to failpoint.
type stepper struct {
	resume func() (string, bool)
	kill   func()
	passed []string
	done   bool
	dead   bool
}

// yield is what the failpoints call, for the stepper that runs; one does at a time.
var yield func(string) bool

func newStepper(f func()) *stepper {
	s := &stepper{}
	next, stop := iter.Pull(func(y func(string) bool) {
		defer func() {
			if r := recover(); r != nil && r != errKilled {
				panic(r)
			}
		}()
		yield = y
		f()
	})
	// The iterator's own yield is the same all the time, so it is kept for each resumption.
	var mine func(string) bool
	s.resume = func() (string, bool) {
		if mine != nil {
			yield = mine
		}
		name, ok := next()
		mine = yield
		return name, ok
	}
	s.kill = stop
	return s
}

// step goes on to the next failpoint.
func (s *stepper) step() {
	name, ok := s.resume()
	if !ok {
		s.done = true
		return
	}
	s.passed = append(s.passed, name)
}

// die ends it where it stands.
func (s *stepper) die() {
	s.dead = true
	s.kill()
}

// hook makes failpoints stop steppers. Outside of steppers they do nothing.
func hook(t *testing.T, names ...string) {
	for _, name := range names {
		t.Cleanup(failpoint.Do(name, func() {
			if y := yield; y != nil && !y(name) {
				yield = nil
				panic(errKilled)
			}
		}))
	}
}

// idle runs f without stopping at failpoints.
func idle(f func()) {
	y := yield
	yield = nil
	f()
	yield = y
}

type stepOp struct {
	name   string
	do     func(*Publisher) error
	frames []string
}

func stepOps() []stepOp {
	// One byte is copied in one piece, so it does not stop half-way: there are runs enough.
	a, b, c := "a", string(message(2, 200)), "c"
	return []stepOp{
		{"publish", func(p *Publisher) error { return p.TryPublish([]byte(b)) }, []string{b}},
		{"batch", func(p *Publisher) error {
			n, err := p.TryPublishBatch([][]byte{[]byte(a), []byte(c)})
			if n != 2 {
				return fmt.Errorf("%d: %v", n, err)
			}
			return nil
		}, []string{a, c}},
		{"commit", func(p *Publisher) error {
			claim, err := p.Claim(300)
			if err != nil {
				return err
			}
			return claim.CommitN(copy(claim.Payload, c))
		}, []string{c}},
		{"abort", func(p *Publisher) error {
			claim, err := p.Claim(300)
			if err != nil {
				return err
			}
			return claim.Abort()
		}, nil},
	}
}

// TestStepPublishers: two publishers, one operation each, in every order; none, one or both
// die; the broker repairs at once or in the end; a reader joins somewhere on the way.
func TestStepPublishers(t *testing.T) {
	hook(t, FailAfterIntent, FailAfterClaim, FailMidCopy, FailMidBatch, FailBeforeCommit, FailMidWrap, FailAfterCommit)
	ops := stepOps()
	runs := 0
	for i := range ops {
		for j := range ops[:i+1] {
			for _, x := range []stepCase{{left: 63, deaths: 1}, {left: 3, deaths: 1, late: true}, {left: 3, deaths: 2}} {
				if x.deaths == 2 && i != 1 {
					continue // of these there are many: a batch, with itself and with a single frame
				}
				c := &choices{}
				for more := true; more; more = c.next() {
					stepPublishers(t, c, x, ops[i], ops[j])
					runs++
					if t.Failed() {
						t.Fatalf("%s and %s, %+v, path %v", ops[i].name, ops[j].name, x, c.path)
					}
				}
			}
		}
	}
	t.Logf("%d runs", runs)
}

type stepCase struct {
	left   uint64 // cells before the wrap
	deaths int
	late   bool // the broker repairs in the end
}

func stepPublishers(t *testing.T, c *choices, x stepCase, ops ...stepOp) {
	start := starts[2] &^ 4095
	start = start.Add(4096 - x.left*64)
	r := heap(t, small(start))
	s := reliable(t, r, 0)
	results := make([]error, len(ops))
	var actors []*stepper
	for i, op := range ops {
		p := publisher(t, r, i)
		actors = append(actors, newStepper(func() { results[i] = op.do(p) }))
	}
	repaired := make([]bool, len(ops))
	repair := func() {
		for i, a := range actors {
			if a.dead && !repaired[i] {
				idle(func() {
					_ = r.CondemnPublisher(i)
					_, err := r.RepairPublisher(i)
					if repaired[i] = err == nil; err != nil && err != ErrRepairPending {
						t.Error(err)
					}
				})
			}
		}
	}
	var joiner *Subscriber
	deaths := x.deaths
	for {
		var alive []*stepper
		for _, a := range actors {
			if !a.done && !a.dead {
				alive = append(alive, a)
			}
		}
		if len(alive) == 0 {
			break
		}
		options := len(alive)
		if deaths > 0 {
			options *= 2
		}
		k := c.pick(options)
		a := alive[k%len(alive)]
		if k < len(alive) {
			a.step()
		} else {
			deaths--
			a.die()
		}
		if !x.late {
			repair()
		}
		if joiner == nil && c.at == 4 {
			idle(func() { joiner = subscriber(t, r, 1, SubscriberConfig{Policy: Reliable}, Earliest()) })
			if joiner.Position() != start {
				t.Errorf("joined at %d, want %d", joiner.Position(), start)
			}
		}
	}
	repair()
	repair() // the first may have waited for the second's intent
	var want [][]string
	for i, a := range actors {
		if results[i] != nil {
			t.Errorf("publisher %d: %v", i, results[i])
		}
		if a.dead && !repaired[i] {
			t.Errorf("publisher %d cannot be repaired", i)
		}
		if slices.Contains(a.passed, FailAfterCommit) {
			want = append(want, ops[i].frames)
		}
	}
	for _, s := range []*Subscriber{s, joiner} {
		if s == nil {
			continue
		}
		got := strings.Join(payloads(drain(t, s)), "|")
		either := func(order ...int) string {
			var all []string
			for _, i := range order {
				if i < len(want) {
					all = append(all, want[i]...)
				}
			}
			return strings.Join(all, "|")
		}
		if got != either(0, 1) && got != either(1, 0) {
			t.Errorf("got %d bytes of payloads, want %d", len(got), len(either(0, 1)))
		}
		if s.Position() != r.Tail() {
			t.Errorf("a reader stops at %d of %d", s.Position(), r.Tail())
		}
	}
}

// TestStepMembers: members that poll in every order, and die; the broker reaps at once or
// in the end; every frame is worked on, and twice only if it is marked.
func TestStepMembers(t *testing.T) {
	hook(t, FailGroupAfterIntent, FailGroupAfterHead, FailGroupMidWork, FailGroupAfterAck, FailGroupAfterTake)
	runs := 0
	for _, orphan := range []bool{false, true} {
		for _, late := range []bool{false, true} {
			c := &choices{}
			for more := true; more; more = c.next() {
				stepMembers(t, c, orphan, late)
				runs++
				if t.Failed() {
					t.Fatalf("orphan %v, late %v, path %v", orphan, late, c.path)
				}
			}
		}
	}
	t.Logf("%d runs", runs)
}

func stepMembers(t *testing.T, c *choices, orphan, late bool) {
	r, p, ms := groupOf(t, starts[2], 3)
	const frames = 3
	idle(func() {
		for i := range frames {
			must(t, p.TryPublish(message(uint64(i), 8)))
		}
		if orphan { // the third member had a range and refused it
			_, _ = ms[2].Poll(2, func(Frame) error { return errRefused })
		}
	})
	worked := map[string]int{}
	handler := func(f Frame) error {
		if worked[string(f.Payload)] > 0 && f.Redelivered == 0 {
			t.Errorf("the frame at %d comes again, unmarked", f.Position)
		}
		worked[string(f.Payload)]++
		return nil
	}
	var actors []*stepper
	for _, m := range ms[:2] {
		actors = append(actors, newStepper(func() {
			if _, err := m.Poll(2, handler); err != nil {
				t.Error(err)
			}
		}))
	}
	reaped := make([]bool, len(actors))
	reap := func() {
		for i, a := range actors {
			if a.dead && !reaped[i] {
				reaped[i] = true
				idle(func() {
					if done, err := r.ReapMember(0, i); err != nil || done.Corrupt {
						t.Errorf("%+v, %v", done, err)
					}
				})
			}
		}
	}
	for {
		var alive []*stepper
		for _, a := range actors {
			if !a.done && !a.dead {
				alive = append(alive, a)
			}
		}
		if len(alive) == 0 {
			break
		}
		k := c.pick(2 * len(alive))
		if a := alive[k%len(alive)]; k < len(alive) {
			a.step()
		} else {
			a.die()
		}
		if !late {
			reap()
		}
	}
	reap()
	idle(func() {
		for ms[2].Ready() {
			if _, err := ms[2].Poll(5, handler); err != nil {
				t.Error(err)
			}
		}
	})
	if len(worked) != frames {
		t.Errorf("%d frames of %d were worked on", len(worked), frames)
	}
	if gs, _ := r.GroupState(0); gs.Orphans != 0 || gs.Lag != 0 {
		t.Errorf("%+v", gs)
	}
}
