package pump

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/ring"
)

// A Source gives frames; *client.Subscriber and *client.Group are such.
type Source interface {
	Poll(limit int, fn func(ring.Frame) error) (int, error)
	Wait(ctx context.Context) error
}

// pollFrames is how many frames of a subscription are taken at once.
const pollFrames = 64

// Sink says where and how Copy writes.
type Sink struct {
	// W gets the frames. Copy writes to it in large pieces, and at once when no more frames are ready.
	W io.Writer
	// Format is how; empty: FormatLine.
	Format Format
	// Count is how many frames; 0: no bound.
	Count uint64
	// Acknowledge is for groups: every frame is written out before it is acknowledged, and taken one at a time so that
	// none waits here that another member could have.
	Acknowledge bool
	// Notice hears of gaps and of being evicted, in words; nil: nobody does.
	Notice func(string)
}

// Copy writes the frames of src to a Sink until it has written Count, or stop ends: both return nil, with everything
// written. An output that its reader has closed (EPIPE) is no error either. Other errors are those of the output and of
// src.
func Copy(stop context.Context, src Source, sink Sink) (Totals, error) {
	c := copier{Sink: sink, out: newPrinter(sink.W, sink.Format)}
	began := time.Now()
	err := c.run(stop, src)
	if flushErr := c.out.w.Flush(); err == nil {
		err = flushErr
	}
	c.totals.Took = time.Since(began)
	if errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	return c.totals, err
}

type copier struct {
	Sink
	out    *printer
	totals Totals
}

func (c *copier) run(stop context.Context, src Source) error {
	limit := pollFrames
	if c.Acknowledge {
		limit = 1
	}
	for stop.Err() == nil {
		n, err := src.Poll(limit, c.frame)
		if err != nil {
			if err := c.missed(err); err != nil {
				return err
			}
			continue
		}
		if c.done() {
			return nil
		}
		if n > 0 {
			continue
		}
		if err := c.out.w.Flush(); err != nil {
			return err
		}
		if err := src.Wait(stop); err != nil && stop.Err() == nil {
			return err
		}
	}
	return nil
}

func (c *copier) done() bool { return c.Count > 0 && c.totals.Frames >= c.Count }

// frame writes one frame; an error leaves it to be read again.
func (c *copier) frame(f ring.Frame) error {
	if err := c.out.frame(f); err != nil {
		return err
	}
	if c.Acknowledge {
		if err := c.out.w.Flush(); err != nil {
			return err
		}
	}
	c.totals.Frames++
	c.totals.Bytes += uint64(len(f.Payload))
	if c.done() {
		return ring.ErrStop
	}
	return nil
}

// missed reports what reading can go on behind, and returns any other error.
func (c *copier) missed(err error) error {
	gap := (*ring.GapError)(nil)
	switch {
	case errors.As(err, &gap):
		c.notice(gap.Error())
		return c.out.gap(gap)
	case errors.Is(err, ring.ErrEvicted):
		c.notice(err.Error())
		return c.out.evicted()
	}
	return err
}

func (c *copier) notice(text string) {
	if c.Notice != nil {
		c.Notice(text)
	}
}
