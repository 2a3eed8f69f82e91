package resp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

const (
	readBuffer  = 64 << 10
	smallRest   = 16 << 10 // up to which the beginning of a command is copied into the shared buffer at each turn
	maxReplies  = 64 << 10 // bytes of replies that are gathered before they are sent
	tlsReadSize = 4 << 10

	minArgs       = 1024     // that a command may have, whatever --max-channels
	strangersBulk = 16 << 10 // bytes of an argument before AUTH
)

// buffers are lent for one turn of a connection, so that idle ones have none.
var buffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// scratch is what a turn needs beyond a buffer.
type scratch struct {
	pending pending
	parser  parser
	replies []byte
}

var scratches = sync.Pool{New: func() any {
	return &scratch{pending: pending{frames: make([][]byte, 0, batchFrames), receivers: make([]int, 0, batchFrames)}}
}}

// read reads and executes commands until the end.
func (c *conn) read(conn net.Conn) error {
	sc, bare := conn.(syscall.Conn)
	if !bare {
		return c.readBlocking(conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	for {
		c.arm()
		var end error
		err := raw.Read(func(fd uintptr) bool {
			end = c.turn(func(b []byte) (int, error) { return sys.Read(int(fd), b) })
			if end == unix.EAGAIN {
				end = nil
				c.arm()
				return false
			}
			return true
		})
		if end != nil {
			return end
		}
		if err = c.expired(err); err != nil {
			return err
		}
	}
}

// readBlocking is read for a connection that is no bare socket, which has a buffer of its own.
func (c *conn) readBlocking(conn net.Conn) error {
	buf := make([]byte, tlsReadSize)
	for {
		c.arm()
		n, err := conn.Read(buf)
		if n > 0 {
			piece := buf[:n]
			end := c.turn(func(b []byte) (int, error) {
				if len(piece) == 0 {
					return 0, unix.EAGAIN
				}
				n := copy(b, piece)
				piece = piece[n:]
				return n, nil
			})
			if end != unix.EAGAIN {
				return end
			}
		}
		if err = c.expired(err); err != nil {
			return err
		}
	}
}

// arm sets the deadline for reading. That for a command counts from its first byte, whatever comes meanwhile.
func (c *conn) arm() {
	var limit time.Duration
	from := time.Now()
	switch {
	case c.access == nil:
		from, limit = c.ready, c.s.cfg.HandshakeTimeout
	case len(c.rest) > 0:
		if c.began.IsZero() {
			c.began = from
		}
		from, limit = c.began, c.s.cfg.PartialTimeout
	case len(c.channels)+len(c.patterns) == 0:
		limit = c.s.cfg.IdleTimeout
	}
	if limit > 0 {
		_ = c.nc.SetReadDeadline(from.Add(limit)) // an error: it is closed, which reading says as well
		c.armed = true
	} else if c.armed {
		_ = c.nc.SetReadDeadline(time.Time{})
		c.armed = false
	}
	if c.over() {
		c.wake()
	}
}

// expired says what an error of reading means; nil: go on.
func (c *conn) expired(err error) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case c.out.Err() != nil || c.stopped.Load():
		return err
	case c.access == nil:
		return fmt.Errorf("%w %v", errNoAuth, c.s.cfg.HandshakeTimeout)
	case len(c.rest) > 0:
		return fmt.Errorf("%w %v", errPartial, c.s.cfg.PartialTimeout)
	}
	return fmt.Errorf("%w %v", errIdle, c.s.cfg.IdleTimeout)
}

// turn reads and executes until nothing is there (unix.EAGAIN), or the end.
func (c *conn) turn(read func(b []byte) (int, error)) error {
	buf := buffers.Get().(*[readBuffer]byte)
	c.scratch = scratches.Get().(*scratch)
	c.bound()
	c.reply.b, c.reply.proto = c.replies[:0], int(c.proto.Load())
	defer func() {
		c.replies = c.reply.b[:0]
		c.reply.b = nil
		if cap(c.replies) > 2*maxReplies {
			c.replies = nil
		}
		scratches.Put(c.scratch)
		c.scratch = nil
		buffers.Put(buf)
	}()
	for {
		b := buf[:]
		held := len(c.rest)
		if held > smallRest || c.need > len(b) {
			var err error
			if b, err = c.grow(c.need); err != nil {
				return err
			}
		} else {
			copy(b, c.rest)
		}
		n, err := read(b[held:])
		if err != nil {
			return err
		}
		if n == 0 {
			return io.EOF
		}
		used := 0
		if held+n >= c.need { // or a command that comes byte by byte would be parsed as often
			used, c.need, err = c.execute(b[:held+n])
		}
		if flushed := c.flush(); err == nil {
			err = flushed
		}
		if used > 0 {
			c.began = time.Time{}
		}
		if kept := c.keep(b[used : held+n]); err == nil {
			err = kept
		}
		if err != nil {
			return c.refuse(err)
		}
		if c.over() {
			return os.ErrDeadlineExceeded
		}
	}
}

// bound sets what a command may have, by what is known of the client now: more may have come together with its AUTH.
func (c *conn) bound() {
	c.parser.maxBulk, c.parser.maxArgs = c.s.cfg.MaxFrame, max(minArgs, c.s.cfg.MaxChannels+1)
	if c.access == nil { // who has not said who it is needs little
		c.parser.maxBulk = min(c.s.cfg.MaxFrame, strangersBulk)
	}
	c.parser.stranger = c.parser.maxBulk < c.s.cfg.MaxFrame
}

// grow returns memory of the connection's own with the beginning of a command and room behind it, which grows with the bytes
// that have come.
func (c *conn) grow(need int) ([]byte, error) {
	if len(c.rest) == cap(c.rest) {
		larger := make([]byte, len(c.rest), max(min(need, 2*len(c.rest)), len(c.rest)+readBuffer/16))
		copy(larger, c.rest)
		if err := c.setRest(larger); err != nil {
			return nil, err
		}
	}
	return c.rest[:cap(c.rest)], nil
}

// keep keeps the beginning of a command.
func (c *conn) keep(b []byte) error {
	switch {
	case len(b) == 0:
		return c.setRest(nil)
	case cap(c.rest) > 0 && &b[0] == &c.rest[:1][0]:
		c.rest = b
		return nil
	}
	return c.setRest(append([]byte(nil), b...))
}

// setRest replaces the memory for the beginning of a command, unless all clients together would have too much of it.
func (c *conn) setRest(b []byte) error {
	more := int64(cap(b) - cap(c.rest))
	if all := c.s.rests.Add(more); more > 0 && all > c.s.cfg.MaxMemory {
		c.s.rests.Add(-more)
		return errRests
	}
	c.rest = b
	return nil
}
