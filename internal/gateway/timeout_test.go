package gateway

import (
	"testing"
	"time"
)

// TestTimeoutsOverSockets sends before the ingress serves, so that no slow machine can make a difference.
func TestTimeoutsOverSockets(t *testing.T) {
	tp := newTopic(100)
	r := newRig(t, tp, func(c *Config) { c.IdleTimeout, c.PartialTimeout = 300*time.Millisecond, 100*time.Millisecond })
	idle, slow := r.dial(), r.dial()
	send(t, idle, len32("idle"))
	send(t, slow, append(len32("slow"), 0, 0, 0, 5, 'x'))
	r.serve()
	wantClosed(t, idle)
	wantClosed(t, slow)
	r.awaitStats("both are counted", func(s Stats) bool {
		return s.Errors["idle_timeout"] == 1 && s.Errors["partial_timeout"] == 1 && s.Open == 0
	})
	if s := r.Stats(); s.Frames != 2 || s.PartialFrames != 1 || s.PartialBytes != 5 {
		t.Errorf("%+v", s)
	}
	r.wantLog("level=WARN", "reason=idle_timeout", "frames=1", "partial_bytes=0")
	r.wantLog("level=WARN", "reason=partial_timeout", "frames=1", "partial_bytes=5")
}

// clockwork is a connection at a time that the test sets.
type clockwork struct {
	*conn
	t   *testing.T
	src *script
	now time.Duration
}

func newClockwork(t *testing.T, idle, partial time.Duration) *clockwork {
	tp := newTopic(100)
	in := unitIngress(t, func(c *Config) {
		c.NewLane, c.IdleTimeout, c.PartialTimeout = tp.newLane, idle, partial
	})
	c := &clockwork{t: t, src: new(script), now: time.Second}
	in.clock = func() time.Duration { return c.now }
	c.conn = newConn(in, c.src)
	c.arm()
	return c
}

// receive lets the connection read b at the given time.
func (c *clockwork) receive(at time.Duration, b []byte) {
	c.t.Helper()
	c.now = at
	c.src.now = append(c.src.now, b...)
	if c.step() {
		c.t.Fatalf("the connection ends at %v: %v", at, c.why)
	}
}

// wantEnd lets deadlines pass until the connection ends, and checks when that is and why.
func (c *clockwork) wantEnd(at time.Duration, why reason) {
	c.t.Helper()
	for c.why == running {
		if c.src.deadline.IsZero() {
			c.t.Fatalf("no deadline is set at %v", c.now)
		}
		c.now = max(c.now, c.src.deadline.Sub(c.in.began))
		c.expire()
		c.arm()
	}
	if c.now != at || c.why != why {
		c.t.Errorf("it ends at %v by %v, want %v by %v", c.now, c.why, at, why)
	}
}

func TestBytesPutOffTheIdleTimeout(t *testing.T) {
	c := newClockwork(t, 10*time.Second, time.Hour)
	c.receive(8*time.Second, len32("a"))
	c.receive(9*time.Second, nil) // a wake-up without bytes puts off nothing
	c.receive(17*time.Second, len32("b", "c")[:7])
	c.wantEnd(27*time.Second, idleTimeout)
}

func TestOnlyWholeFramesPutOffThePartialTimeout(t *testing.T) {
	c := newClockwork(t, time.Hour, 10*time.Second)
	c.receive(5*time.Second, len32("a", "b")[:6])
	c.receive(12*time.Second, len32("a", "b")[6:9]) // one is whole now, the next one begun
	for at := 13 * time.Second; at < 20*time.Second; at += time.Second {
		c.receive(at, nil)
	}
	c.receive(20*time.Second, []byte{'b'})
	c.receive(21*time.Second, []byte{0, 0, 0, 90})
	for at := 22 * time.Second; at < 31*time.Second; at += time.Second {
		c.receive(at, []byte{'x'})
	}
	c.wantEnd(31*time.Second, slowFrame)
}

func TestWaitingForATurnPutsOffThePartialTimeout(t *testing.T) {
	c := newClockwork(t, time.Hour, 10*time.Second)
	c.receive(5*time.Second, []byte{0, 0})
	c.now = 105 * time.Second
	c.note(100*time.Second, true, false)
	c.wantEnd(115*time.Second, slowFrame)
}

func TestNoDeadlineIsLeftWhenNothingIsToBeTimed(t *testing.T) {
	c := newClockwork(t, 0, 10*time.Second)
	if !c.src.deadline.IsZero() {
		t.Error("a deadline for a connection without time-outs")
	}
	c.receive(5*time.Second, []byte{0, 0})
	if got := c.src.deadline.Sub(c.in.began); got != 15*time.Second {
		t.Errorf("the deadline is %v", got)
	}
	c.receive(6*time.Second, []byte{0, 0})
	c.now = 15 * time.Second
	c.expire() // RawConn.Read would do nothing but fail as long as this deadline stands
	c.arm()
	if c.why != running || !c.src.deadline.IsZero() {
		t.Errorf("%v, deadline %v", c.why, c.src.deadline)
	}
}

func TestNegativePartialTimeoutIsNone(t *testing.T) {
	c := newClockwork(t, 0, -1)
	c.receive(time.Hour, []byte{0, 0})
	if !c.src.deadline.IsZero() {
		t.Errorf("deadline %v", c.src.deadline)
	}
}
