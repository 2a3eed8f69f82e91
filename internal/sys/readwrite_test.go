package sys

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func streamPair(t *testing.T) (ours, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, fd := range fds {
			if err := unix.Close(fd); err != nil && err != unix.EBADF {
				t.Error(err)
			}
		}
	})
	return fds[0], fds[1]
}

func TestReadTellsNothingYetFromTheEnd(t *testing.T) {
	ours, theirs := streamPair(t)
	b := make([]byte, 16)

	if n, err := Read(ours, b); err != unix.EAGAIN {
		t.Errorf("Read of an empty socket = %d, %v; want EAGAIN", n, err)
	}
	if _, err := unix.Write(theirs, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if n, err := Unread(ours); n != 5 || err != nil {
		t.Errorf("Unread = %d, %v; want 5", n, err)
	}
	if AtEOF(ours) || !Readable(ours) {
		t.Error("AtEOF, or not Readable, while bytes are waiting")
	}
	if n, err := Read(ours, b); err != nil || string(b[:n]) != "hello" {
		t.Errorf("Read = %q, %v", b[:max(n, 0)], err)
	}
	if AtEOF(ours) || Readable(ours) {
		t.Error("AtEOF or Readable while the peer may still send")
	}
	if err := unix.Shutdown(theirs, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if !AtEOF(ours) || !Readable(ours) {
		t.Error("not AtEOF, or not Readable, after the peer's shutdown")
	}
	if n, err := Read(ours, b); n != 0 || err != nil {
		t.Errorf("Read at the end = %d, %v; want 0, nil", n, err)
	}
}

func TestAtEOFIsFalseWithBytesBeforeTheEnd(t *testing.T) {
	ours, theirs := streamPair(t)
	if _, err := unix.Write(theirs, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(theirs, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if AtEOF(ours) {
		t.Error("AtEOF with a byte that nobody has read")
	}
}

func TestUnreadNamesItsCall(t *testing.T) {
	if _, err := Unread(-1); !errors.Is(err, unix.EBADF) || err.Error() != "ioctl SIOCINQ: bad file descriptor" {
		t.Errorf("Unread(-1): %v", err)
	}
}
