package gateway

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/sys"
)

// secureSocket is a source over TLS. Package tls knows only reads that wait; during the handshake, which takes no buffer, they
// do. Afterwards rawSide answers them at once, with an error that passes where there is nothing, and what has come of a
// record is kept until the rest has.
type secureSocket struct {
	*socket
	in   *Ingress
	side *rawSide
	tls  *tls.Conn // after begin
	who  string    // what the client's certificate calls it
}

func newSecureSocket(in *Ingress, plain *socket) *secureSocket {
	return &secureSocket{socket: plain, in: in, side: &rawSide{Conn: plain.conn, socket: plain, stopping: in.stopping.Load}}
}

// begin is the handshake.
func (s *secureSocket) begin() error {
	s.side.hurry = s.in.stopping.Load() // then no interrupt comes
	conn, err := s.in.cfg.Secure.Server(s.in.hard, s.side, s.in.cfg.HandshakeTimeout)
	if err != nil {
		return err
	}
	s.tls, s.who, s.side.live = conn, door.Identity(conn), true
	return nil
}

func (s *secureSocket) read(b []byte) (int, error) {
	n, err := s.tls.Read(b)
	switch {
	case n > 0:
		return n, nil // an error comes again
	case errors.Is(err, errNotNow):
		return 0, unix.EAGAIN
	case err == io.EOF && s.side.ended: // the connection's end, where TLS has one of its own
		return 0, io.ErrUnexpectedEOF
	}
	return 0, err
}

// atEOF is not known: a farewell that has come was read and is what read returned.
func (s *secureSocket) atEOF() bool { return false }

func (s *secureSocket) name() string {
	if s.who == "" {
		return s.socket.name()
	}
	return s.socket.name() + " (" + s.who + ")"
}

func (s *secureSocket) close() error {
	if s.tls == nil {
		return s.socket.close()
	}
	return s.tls.Close()
}

// rawSide is the encrypted side of a secure connection.
type rawSide struct {
	net.Conn
	socket   *socket
	stopping func() bool
	hurry    bool // the ingress stops: the handshake gets what has come, and waits for nothing
	live     bool // the handshake is done: no call waits
	ended    bool // the peer has closed its side
}

// notNow is an error of which package tls believes that it will pass.
type notNow struct{}

func (notNow) Error() string   { return "nothing to read now" }
func (notNow) Timeout() bool   { return true }
func (notNow) Temporary() bool { return true }

var errNotNow error = notNow{}

// errDeaf says that the peer sends and does not read. To wait for it would be to wait with a worker in hand.
var errDeaf = errors.New("the peer does not read what TLS has to tell it")

func (r *rawSide) Read(b []byte) (int, error) {
	if !r.live {
		return r.greet(b)
	}
	n, err := r.socket.read(b)
	switch err {
	case unix.EAGAIN:
		return 0, errNotNow
	case io.EOF:
		r.ended = true
	}
	return n, err
}

// greet reads for the handshake. When the ingress stops, which it learns by a deadline that has passed, it still gets what has
// come: the client may be through with the handshake, and have sent frames.
func (r *rawSide) greet(b []byte) (int, error) {
	if !r.hurry {
		n, err := r.Conn.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) || !r.stopping() {
			return n, err
		}
		r.hurry = true
	}
	var n int
	var readErr error
	err := r.socket.raw.Control(func(fd uintptr) { n, readErr = sys.Read(int(fd), b) }) // which looks at no deadline
	switch {
	case err != nil:
		return 0, err
	case readErr != nil:
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write writes what TLS has to say: after the handshake without waiting.
func (r *rawSide) Write(b []byte) (int, error) {
	if !r.live {
		return r.Conn.Write(b)
	}
	var n int
	var writeErr error
	err := r.socket.raw.Control(func(fd uintptr) {
		vector := unix.Iovec{Base: &b[0]}
		vector.SetLen(len(b))
		n, writeErr = sys.Writev(int(fd), []unix.Iovec{vector})
	})
	switch {
	case err != nil:
		return 0, err
	case writeErr == unix.EAGAIN, writeErr == nil && n < len(b):
		return n, errDeaf
	}
	return n, writeErr
}
