package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	// feedBuffer is how many bytes are sent by one write at full speed.
	feedBuffer = 64 << 10
	// pacedTick is the time between two writes at a steady rate: as precise as Go's timers are.
	pacedTick = time.Millisecond
)

// A feeder sends frames over TCP, each behind its length in four bytes (codec len32).
type feeder struct {
	conn  net.Conn
	clock clock
	next  uint64 // number of the next frame
	buf   []byte
	ends  func() bool // stops watching the context
}

// newFeeder connects to an ingress. When ctx ends, a write that waits returns.
func newFeeder(ctx context.Context, address string) (*feeder, error) {
	c, err := newClock()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to the ingress: %w", err)
	}
	ends := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Unix(1, 0)) })
	return &feeder{conn: conn, clock: c, ends: ends, buf: make([]byte, 0, feedBuffer+4+maxPayload)}, nil
}

func (f *feeder) close() error {
	f.ends()
	return f.conn.Close()
}

// add appends the next frame to what will be sent, stamped with the time now.
func (f *feeder) add() {
	n := payloadSize(f.next)
	f.buf = binary.BigEndian.AppendUint32(f.buf, uint32(n))
	f.buf = f.buf[:len(f.buf)+n]
	fill(f.buf[len(f.buf)-n:], f.next, f.clock.now())
	f.next++
}

func (f *feeder) send(ctx context.Context) error {
	_, err := f.conn.Write(f.buf)
	f.buf = f.buf[:0]
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return fmt.Errorf("send to the ingress: %w", err)
	}
	return nil
}

// full sends frames up to number end as fast as they are taken, and returns when the first was sent.
func (f *feeder) full(ctx context.Context, end uint64) (first time.Duration, err error) {
	first = f.clock.now()
	for f.next < end {
		for f.next < end && len(f.buf) < feedBuffer {
			f.add()
		}
		if err := f.send(ctx); err != nil {
			return first, err
		}
	}
	return first, nil
}

// paced sends frames up to number end, rate of them a second, whatever happens to those before.
func (f *feeder) paced(ctx context.Context, end uint64, rate float64) error {
	begin, from := time.Now(), f.next
	tick := time.NewTicker(pacedTick)
	defer tick.Stop()
	for f.next < end {
		due := from + uint64(time.Since(begin).Seconds()*rate) + 1
		for f.next < min(due, end) && len(f.buf) < feedBuffer {
			f.add()
		}
		if len(f.buf) > 0 {
			if err := f.send(ctx); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// errInterrupted is the cause of an end that somebody asked for.
var errInterrupted = errors.New("interrupted")
