package testutil

import (
	"net"
	"testing"
	"time"
)

// Conns returns the two ends of a TCP connection on loopback, which the test's end closes. Theirs fails after two minutes, so
// that a test which waits for what does not come ends.
func Conns(t testing.TB) (ours, theirs *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	if err := near.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return far.(*net.TCPConn), near.(*net.TCPConn)
}
