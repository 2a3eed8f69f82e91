package resp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/gateway/outbox"
	"github.com/hugebus/hugebus/internal/sys"
)

// Why connections end, or are not taken on.
const (
	endOfStream    = "end_of_stream"
	stopped        = "stopped"
	brokenConn     = "connection_error"
	protocolBroken = "protocol_error"
	idleTimeout    = "idle_timeout"
	partialTimeout = "partial_timeout"
	writeTimeout   = "write_timeout"
	tooSlow        = "slow"
	pipeline       = "pipeline"
	handshake      = "handshake_failed"
	refused        = "too_many_connections"
	acceptFailed   = "accept_failed"
)

var (
	errIdle     = errors.New("nothing came for --idle-timeout")
	errPartial  = errors.New("a command did not come whole within --partial-timeout")
	errPipeline = errors.New("more commands than --max-pipeline wait for their replies to be read: read them, or raise --max-pipeline")
	errQuit     = errors.New("quit")
)

const (
	readBuffer  = 64 << 10
	smallRest   = 16 << 10 // up to which the beginning of a command is copied into the shared buffer at each turn
	maxReplies  = 64 << 10 // bytes of replies that are gathered before they are sent
	tlsReadSize = 4 << 10
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

// conn is one client.
type conn struct {
	s      *Server
	nc     net.Conn
	number uint64
	name   string
	outbox atomic.Pointer[outbox.Outbox] // what others see of out
	out    *outbox.Outbox
	proto  atomic.Int32
	access *door.Access // nil: it has not said who it is

	channels, patterns map[string]struct{}

	rest    []byte // the beginning of a command
	unread  int    // commands since the client last had read everything
	armed   time.Duration
	stopped atomic.Bool
	reply   reply

	*scratch // during a turn
}

func newConn(s *Server, nc net.Conn, number uint64) *conn {
	c := &conn{s: s, nc: nc, number: number}
	c.proto.Store(2)
	if s.cfg.Rules == nil {
		c.access = door.Everything
	}
	return c
}

// serve runs the connection to its end.
func (c *conn) serve() {
	err := c.run()
	c.unsubscribeAll()
	why := c.why(err)
	attrs := []slog.Attr{slog.String("peer", c.nc.RemoteAddr().String())}
	if why == endOfStream || why == stopped {
		c.s.cfg.Logger.LogAttrs(context.Background(), slog.LevelDebug, "connection closed", append(attrs, slog.String("reason", why))...)
	} else {
		c.s.warnings.Warn(why, "connection closed", append(attrs, slog.Any("error", err))...)
	}
	c.s.ends.add(why) // after the line: who sees the one finds the other
	if c.out != nil {
		c.out.Close()
	}
	_ = c.nc.Close() // an error of close has no remedy
}

// why names the reason of an end.
func (c *conn) why(err error) string {
	var protocol *protocolError
	for _, r := range []struct {
		err  error
		name string
	}{
		{outbox.ErrSlow, tooSlow}, {ErrMemory, tooSlow}, {outbox.ErrWriteTimeout, writeTimeout}, {errIdle, idleTimeout}, {errPartial, partialTimeout},
		{errPipeline, pipeline}, {errQuit, endOfStream}, {io.EOF, endOfStream}, {errHandshake, handshake},
	} {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	switch {
	case errors.As(err, &protocol):
		return protocolBroken
	case c.stopped.Load():
		return stopped
	}
	return brokenConn
}

var errHandshake = errors.New("no secure connection")

// run is serve without the reporting.
func (c *conn) run() error {
	if err := c.s.cfg.Socket.Dress(c.nc); err != nil {
		return err
	}
	conn := c.nc
	if c.s.cfg.Secure != nil {
		secure, err := c.s.cfg.Secure.Server(c.s.ctx, c.nc, c.s.cfg.HandshakeTimeout)
		if err != nil {
			return fmt.Errorf("%w: %w", errHandshake, err)
		}
		conn = secure
		if name := door.Identity(secure); name != "" && c.s.cfg.Rules != nil {
			c.access = c.s.cfg.Rules.Named(name)
		}
	}
	out, err := outbox.New(&c.s.shared, conn, c.wake)
	if err != nil {
		return err
	}
	c.out = out
	c.outbox.Store(out)
	err = c.read(conn)
	if own := out.Err(); own != nil {
		return own
	}
	if errors.Is(err, errQuit) || errors.Is(err, io.EOF) || c.stopped.Load() || isProtocol(err) {
		c.sendLast()
	}
	return err
}

func isProtocol(err error) bool {
	var p *protocolError
	return errors.As(err, &p)
}

// sendLast waits until the client has taken what waits for it, within the time-outs of writing.
func (c *conn) sendLast() {
	c.out.CloseWhenSent()
	limit := c.s.cfg.DrainTimeout
	for deadline := time.Now().Add(limit); c.out.Err() == nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// wake makes read return.
func (c *conn) wake() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) } // an error: it is closed, and read returns

// stop ends the connection after what it has read.
func (c *conn) stop() {
	c.stopped.Store(true)
	c.wake()
}

// over says that the connection is to end, whatever deadline was set.
func (c *conn) over() bool {
	return c.stopped.Load() || c.out.Err() != nil
}

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

// arm sets the deadline for reading.
func (c *conn) arm() {
	var limit time.Duration
	switch {
	case len(c.rest) > 0:
		limit = c.s.cfg.PartialTimeout
	case len(c.channels)+len(c.patterns) == 0:
		limit = c.s.cfg.IdleTimeout
	}
	if limit > 0 {
		_ = c.nc.SetReadDeadline(time.Now().Add(limit)) // an error: it is closed, which reading says as well
		c.armed = limit
	} else if c.armed > 0 {
		_ = c.nc.SetReadDeadline(time.Time{})
		c.armed = 0
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
	case len(c.rest) > 0:
		return fmt.Errorf("%w %v", errPartial, c.s.cfg.PartialTimeout)
	}
	return fmt.Errorf("%w %v", errIdle, c.s.cfg.IdleTimeout)
}

// turn reads and executes until nothing is there (unix.EAGAIN), or the end.
func (c *conn) turn(read func(b []byte) (int, error)) error {
	buf := buffers.Get().(*[readBuffer]byte)
	c.scratch = scratches.Get().(*scratch)
	c.parser.maxBulk = c.s.cfg.MaxFrame
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
	need := 0
	for {
		b := buf[:]
		held := len(c.rest)
		if held > smallRest || need > len(b) {
			b = c.grow(need)
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
		var used int
		used, need, err = c.execute(b[:held+n])
		if flushed := c.flush(); err == nil {
			err = flushed
		}
		c.keep(b[used : held+n])
		if err != nil {
			return c.refuse(err)
		}
		if c.over() {
			return os.ErrDeadlineExceeded
		}
	}
}

// grow returns memory of the connection's own with the beginning of a command and room behind it, which grows with the bytes
// that have come.
func (c *conn) grow(need int) []byte {
	if len(c.rest) == cap(c.rest) {
		larger := make([]byte, len(c.rest), max(min(need, 2*len(c.rest)), len(c.rest)+readBuffer/16))
		copy(larger, c.rest)
		c.rest = larger
	}
	return c.rest[:cap(c.rest)]
}

// keep keeps the beginning of a command.
func (c *conn) keep(b []byte) {
	switch {
	case len(b) == 0:
		c.rest = nil
	case cap(c.rest) > 0 && &b[0] == &c.rest[:1][0]:
		c.rest = b
	default:
		c.rest = append([]byte(nil), b...)
	}
}

// refuse tells the client of a protocol error.
func (c *conn) refuse(err error) error {
	if isProtocol(err) {
		c.reply.failure("ERR " + err.Error())
		_ = c.flush() // err is the reason
	}
	return err
}

// flush publishes what is pending, and sends the replies.
func (c *conn) flush() error {
	c.publishPending()
	if len(c.reply.b) > 0 {
		c.out.SendBytes(c.reply.b)
		c.reply.b = c.reply.b[:0]
	}
	if lag, _ := c.out.Lag(); lag == 0 {
		c.unread = 0
	} else if c.unread > c.s.cfg.MaxPipeline {
		return fmt.Errorf("%w (%d)", errPipeline, c.s.cfg.MaxPipeline)
	}
	return nil
}

// publishPending publishes the PUBLISHes that wait, and writes their replies.
func (c *conn) publishPending() {
	p := &c.pending
	if len(p.frames) == 0 {
		return
	}
	n, err := c.s.publish(p.outlet, p.frames)
	for i := range p.frames {
		if i < n {
			c.reply.integer(p.receivers[i])
		} else {
			c.reply.failure("ERR " + strings.TrimPrefix(fmt.Sprint(err), "client: "))
		}
	}
	clear(p.frames)
	p.outlet, p.frames, p.receivers = nil, p.frames[:0], p.receivers[:0]
}
