package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/codec"
)

// conn is one connection. Its goroutine alone uses it, but for interrupt.
type conn struct {
	in     *Ingress
	src    source
	cutter codec.Cutter
	bytes  stretch // what has come and is not published: between turns, the beginning of one frame
	need   int     // bytes that this frame takes at least

	received uint64 // bytes
	frames   uint64 // published

	why      reason // why the connection ended, or running
	err      error  // what broke it, if anything
	leftover int    // bytes that were left when it ended
	sealed   bool   // only what had come when the ingress stopped is read

	lastRead     time.Duration // when bytes came last; these three count from Ingress.began
	partialSince time.Duration // when the frame that is not whole was begun
	armed        time.Duration // the deadline that is set; 0: none

	mu          sync.Mutex // guards the setting of deadlines against interrupt
	interrupted bool
}

func newConn(in *Ingress, src source) *conn {
	return &conn{
		in: in, src: src, cutter: in.codec.NewCutter(in.maxFrame), bytes: stretch{pool: &in.chunks},
		lastRead: in.now(),
	}
}

// serve runs the connection to its end.
func (c *conn) serve() {
	if err := c.src.begin(); err != nil {
		c.endUnbegun(err)
	}
	step := c.step // one method value for all turns
	for c.why == running {
		c.arm()
		err := c.src.run(step)
		switch {
		case c.why != running:
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.expire()
		default:
			c.end(brokenConn, err)
		}
	}
	c.leftover = c.bytes.len()
	c.bytes.drop()
	c.report()
	if err := c.src.close(); err != nil && c.err == nil {
		c.in.cfg.Logger.Debug("closing a connection failed", "peer", c.src.name(), "error", err)
	}
}

// end notes why the connection is over; the first reason counts.
func (c *conn) end(why reason, err error) {
	if c.why == running {
		c.why, c.err = why, err
	}
}

// endUnbegun ends the connection because nothing can come over it.
func (c *conn) endUnbegun(err error) {
	switch {
	case c.in.hard.Err() != nil:
		c.end(aborted, nil)
	case c.in.stopping.Load():
		c.end(stopped, nil)
	default:
		c.end(handshakeFailed, err)
	}
}

// report counts and logs the end.
func (c *conn) report() {
	in := c.in
	in.ends[c.why].Add(1)
	torn := c.leftover
	if c.why == frameTooLarge {
		torn = 0 // these bytes are not the beginning of any frame
	}
	if torn > 0 {
		in.tornFrames.Add(1)
		in.tornBytes.Add(uint64(torn))
	}
	if c.why == stopped {
		in.stopTorn.Add(uint64(torn))
	}
	attrs := []slog.Attr{
		slog.String("peer", c.src.name()), slog.Uint64("frames", c.frames), slog.Int("partial_bytes", torn),
	}
	if c.err != nil {
		attrs = append(attrs, slog.Any("error", c.err))
	}
	if c.why.isError() {
		in.warnings.Warn(c.why.String(), "connection closed", attrs...)
		return
	}
	in.debug("connection closed", append(attrs, slog.String("reason", c.why.String()))...)
}

// deadline returns when the connection will have been silent, or busy with one frame, for too long, and which of these
// comes first. 0 is never.
func (c *conn) deadline() (at time.Duration, why reason) {
	if c.in.cfg.IdleTimeout > 0 {
		at, why = c.lastRead+c.in.cfg.IdleTimeout, idleTimeout
	}
	if c.bytes.len() > 0 && c.in.cfg.PartialTimeout > 0 {
		if partial := c.partialSince + c.in.cfg.PartialTimeout; at == 0 || partial < at {
			at, why = partial, slowFrame
		}
	}
	return at, why
}

// arm sets the deadline if it is not set to that moment or an earlier one. A deadline that has become too early is left
// to pass (see expire), so a busy connection sets one now and then, and not at every turn.
func (c *conn) arm() {
	at, _ := c.deadline()
	if at == 0 || (c.armed != 0 && c.armed <= at) {
		return
	}
	c.armed = at
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.interrupted {
		c.setDeadline(c.in.began.Add(at))
	}
}

// setDeadline sets the deadline. An error means that the socket is broken, which the next read says better.
func (c *conn) setDeadline(t time.Time) {
	if err := c.src.setDeadline(t); err != nil {
		c.in.debug("setting a deadline failed", slog.String("peer", c.src.name()), slog.Any("error", err))
	}
}

// interrupt wakes the connection, now or when it next sleeps, because the ingress stops. Any goroutine may call it.
func (c *conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	c.setDeadline(time.Unix(1, 0))
}

// tooLong is the limit that a connection has passed by which it ends.
func (c *conn) tooLong(why reason) error {
	if why == slowFrame {
		return fmt.Errorf("a frame did not come whole within --partial-timeout %v", c.in.cfg.PartialTimeout)
	}
	return fmt.Errorf("nothing came for --idle-timeout %v", c.in.cfg.IdleTimeout)
}

// expire finds out what a deadline that passed means. If the connection goes on, no deadline is set afterwards.
func (c *conn) expire() {
	if at, why := c.deadline(); at != 0 && c.in.now() >= at && !c.in.stopping.Load() {
		c.end(why, c.tooLong(why))
		return
	}
	// With one that is over, run would return at once and never call step. An interrupt that is lost by this is not
	// missed: step comes first, and sees that the ingress stops.
	c.armed = 0
	c.setDeadline(time.Time{})
}
