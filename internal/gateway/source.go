package gateway

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// A source is the byte stream of one connection, in the way a turn needs it: it tells when there may be something to
// read, and never waits while a buffer is borrowed.
type source interface {
	// begin does what comes before the first byte, which may take a while. Deadlines end it.
	begin() error

	// run calls step at once, and again whenever more may have come, until step returns true (then run returns nil) or
	// the deadline passes (os.ErrDeadlineExceeded). Step must have read until unix.EAGAIN before it returns false.
	run(step func() bool) error

	// read, seal, unread and atEOF are for step alone. read returns unix.EAGAIN if there is nothing now, io.EOF at the
	// end, and io.ErrUnexpectedEOF at an end that the peer may not have meant. After seal it returns no bytes any more that had not
	// come when seal was called. unread returns how many bytes have come that were not read; atEOF whether the end is
	// next.
	read(b []byte) (int, error)
	seal()
	unread() int
	atEOF() bool

	setDeadline(t time.Time) error
	name() string
	close() error
}

// socket is a source over a connection of package net.
type socket struct {
	conn    net.Conn
	raw     syscall.RawConn
	fd      int // valid inside run's step
	sealed  bool
	left    int // bytes that may be read, once it is sealed
	step    func() bool
	onReady func(fd uintptr) bool
}

func newSocket(conn net.Conn) (*socket, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a connection of type %T has no socket to wait on: use a TCP or Unix listener", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn, raw: raw}
	s.onReady = func(fd uintptr) bool { // made once: a closure for each wake-up would be an allocation for each
		s.fd = int(fd)
		return s.step()
	}
	return s, nil
}

// run stays inside one RawConn.Read, whose callback does the work of a turn. The netpoller is edge-triggered, and
// entering RawConn.Read anew forgets an edge that came in between; going back to sleep from the callback does not.
func (s *socket) run(step func() bool) error {
	s.step = step
	return s.raw.Read(s.onReady)
}

func (s *socket) begin() error { return nil }

func (s *socket) read(b []byte) (int, error) {
	if s.sealed {
		if b = b[:min(len(b), s.left)]; len(b) == 0 {
			return 0, unix.EAGAIN
		}
	}
	n, err := sys.Read(s.fd, b)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	s.left -= n
	return n, nil
}

func (s *socket) seal() { s.sealed, s.left = true, s.unread() }

func (s *socket) unread() int {
	n, err := sys.Unread(s.fd)
	if err != nil {
		return 0 // the descriptor is open and a socket, so what is left is a broken connection
	}
	return n
}

func (s *socket) atEOF() bool { return sys.AtEOF(s.fd) }

func (s *socket) setDeadline(t time.Time) error { return s.conn.SetReadDeadline(t) }

func (s *socket) name() string { return s.conn.RemoteAddr().String() }

func (s *socket) close() error { return s.conn.Close() }
