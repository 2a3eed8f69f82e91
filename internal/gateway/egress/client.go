package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/gateway/outbox"
	"github.com/hugebus/hugebus/internal/sys"
)

// Why connections end, or are not taken on.
const (
	endOfStream  = "end_of_stream"
	stopped      = "stopped"
	brokenConn   = "connection_error"
	writeTimeout = "write_timeout"
	tooSlow      = "slow"
	skipped      = "skipped" // no end; only in the log
	handshake    = "handshake_failed"
	refused      = "too_many_connections"
)

// client is one connection. Its goroutine sleeps until the client sends something (which is thrown away) or goes; what is
// sent to it is the writers' work.
type client struct {
	e      *Egress
	conn   net.Conn
	number uint64
	out    atomic.Pointer[outbox.Outbox] // nil until it is secure
	index  int                           // in its writer's list; the writer's
	before extent                        // what its first batch has from before it joined; the writer's
	halted atomic.Bool
}

// extent is how much a part of a batch is.
type extent struct{ bytes, frames int }

// serve runs the client to its end.
func (c *client) serve() {
	why, err := c.run()
	attrs := []slog.Attr{slog.String("peer", peerName(c.conn))}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	switch why {
	case endOfStream, stopped:
		c.e.cfg.Logger.LogAttrs(context.Background(), slog.LevelDebug, "connection closed", append(attrs, slog.String("reason", why))...)
	case tooSlow: // told already
	default:
		c.e.warnings.Warn(why, "connection closed", attrs...)
	}
	c.e.ends.Add(why)  // after the line: who sees the one finds the other
	_ = c.conn.Close() // an error of close has no remedy
}

// run is serve without the reporting.
func (c *client) run() (why string, err error) {
	if err := c.e.cfg.Socket.Dress(c.conn); err != nil {
		return brokenConn, err
	}
	conn := c.conn
	if c.e.cfg.Secure != nil {
		if conn, err = c.e.cfg.Secure.Server(c.e.ctx, c.conn, c.e.cfg.HandshakeTimeout); err != nil {
			if c.e.ctx.Err() != nil {
				return stopped, nil
			}
			return handshake, err
		}
	}
	out, err := outbox.New(&c.e.shared, conn, c.wake)
	if err != nil {
		return brokenConn, err
	}
	c.out.Store(out)
	w := c.e.writers[c.number%uint64(len(c.e.writers))]
	w.join(c, out)
	err = c.discard(conn)
	w.leave(c)
	if own := out.Err(); own != nil {
		err = own
	}
	c.e.unsentBytes.Add(uint64(out.Close()))
	switch {
	case errors.Is(err, outbox.ErrSlow), errors.Is(err, outbox.ErrTorn):
		return tooSlow, err
	case errors.Is(err, outbox.ErrWriteTimeout):
		return writeTimeout, fmt.Errorf("%w %v", err, c.e.cfg.WriteTimeout)
	case c.halted.Load():
		return stopped, nil
	case err == io.EOF:
		return endOfStream, nil
	}
	return brokenConn, err
}

// wake makes discard return.
func (c *client) wake() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) } // an error: it is closed, and discard returns

// stop ends the client because the egress stops.
func (c *client) stop() {
	c.halted.Store(true)
	_ = c.conn.SetDeadline(time.Unix(1, 0)) // as in wake; and a handshake ends
}

// scratches are lent for reading what nobody wants.
var scratches = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// discard reads what the client sends, which means nothing, until its end. A client that closes its side is done: it cannot be
// told from one that has gone until something is written to it.
func (c *client) discard(conn net.Conn) error {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		_, err := io.Copy(io.Discard, conn)
		if err == nil {
			err = io.EOF
		}
		return err
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	var end error
	err = raw.Read(func(fd uintptr) bool {
		buf := scratches.Get().(*[4 << 10]byte)
		defer scratches.Put(buf)
		for {
			n, err := sys.Read(int(fd), buf[:])
			switch {
			case err == unix.EAGAIN:
				return false
			case err != nil:
				end = err
			case n == 0:
				end = io.EOF
			default:
				continue
			}
			return true
		}
	})
	if end != nil {
		err = end
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // woken
	}
	return err
}

// peerName is how a client is called in logs: its address, or that of a Unix socket, whose clients have none.
func peerName(c net.Conn) string {
	if name := c.RemoteAddr().String(); name != "" && name != "@" {
		return name
	}
	return "unix " + c.LocalAddr().String()
}
