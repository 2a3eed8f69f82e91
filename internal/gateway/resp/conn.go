package resp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/gateway/outbox"
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
	tooMuchMemory  = "memory"
	tooLarge       = "too_large"
	crossProtocol  = "cross_protocol"
	refused        = "too_many_connections"
)

var (
	errIdle     = errors.New("nothing came for --idle-timeout")
	errPartial  = errors.New("a command did not come whole within --partial-timeout")
	errNoAuth   = errors.New("the client has not said who it is (AUTH, or HELLO's AUTH) within --handshake-timeout")
	errRests    = errors.New("commands that have not come whole hold as much memory as --max-memory allows for all clients together: raise it, or lower --max-frame or --max-conns")
	errPipeline = errors.New("more commands than --max-pipeline wait for their replies to be read: read them, or raise --max-pipeline")
	errForeign  = errors.New("the client speaks HTTP: it may be a browser that a page has sent here to have commands executed, and nothing more of it is")
	errQuit     = errors.New("quit")
)

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

	rest    []byte    // the beginning of a command
	began   time.Time // when its first byte came; zero: not known yet
	ready   time.Time // when the connection was secure
	need    int       // bytes that rest needs to be worth parsing
	unread  int       // commands since the client last had read everything
	armed   bool      // there is a deadline for reading
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
	c.s.ends.Add(why) // after the line: who sees the one finds the other
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
		{errNoAuth, handshake}, {errRests, tooMuchMemory}, {errForeign, crossProtocol},
	} {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	switch {
	case errors.As(err, &protocol) && protocol.limit:
		return tooLarge
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
	c.ready = time.Now()
	out, err := outbox.New(&c.s.shared, conn, c.wake)
	if err != nil {
		return err
	}
	c.out = out
	c.outbox.Store(out)
	err = c.read(conn)
	c.setRest(nil)
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
	if p.outlet == nil {
		return
	}
	if len(p.frames) > 0 {
		n, err := c.s.publishAll(p)
		for i := range p.frames {
			if i < n {
				c.reply.integer(p.receivers[i])
			} else {
				c.reply.failure("ERR " + plain(err))
			}
		}
		c.s.givenUp.Add(uint64(len(p.frames) - n))
		clear(p.frames)
	}
	if p.outlet != nil { // another could be had
		c.s.release(p.outlet)
	}
	p.outlet, p.frames, p.receivers = nil, p.frames[:0], p.receivers[:0]
}
