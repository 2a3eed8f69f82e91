package sys_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

func newEventFD(t *testing.T) int {
	t.Helper()
	fd, err := sys.EventFD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	})
	return fd
}

func readCounter(t *testing.T, fd int) uint64 {
	t.Helper()
	var b [8]byte
	if _, err := unix.Read(fd, b[:]); err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(b[:])
}

func TestEventFDIsNonBlockingAndCloseOnExec(t *testing.T) {
	fd := newEventFD(t)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v: not non-blocking", flags, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v: not close-on-exec", flags, err)
	}
}

func TestEventFDAddCounts(t *testing.T) {
	fd := newEventFD(t)
	for range 3 {
		if err := sys.EventFDAdd(fd); err != nil {
			t.Fatal(err)
		}
	}
	if n := readCounter(t, fd); n != 3 {
		t.Errorf("counter is %d after 3 rings", n)
	}
}

// A hostile peer can fill the counter; a ring must still wake those who watch, so it has to become a write.
func TestEventFDAddEmptiesAFullCounter(t *testing.T) {
	fd := newEventFD(t)
	full := binary.NativeEndian.AppendUint64(nil, math.MaxUint64-1)
	if _, err := unix.Write(fd, full); err != nil {
		t.Fatal(err)
	}
	if err := sys.EventFDAdd(fd); err != nil {
		t.Fatal(err)
	}
	if n := readCounter(t, fd); n != 1 {
		t.Errorf("counter is %d, want 1", n)
	}
}

func TestEventFDAddErrors(t *testing.T) {
	if err := sys.EventFDAdd(-1); !errors.Is(err, unix.EBADF) {
		t.Errorf("got %v, want EBADF", err)
	} else if got, want := err.Error(), "write eventfd: bad file descriptor"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEventFDAddAllocatesNothing(t *testing.T) {
	fd := newEventFD(t)
	n := testing.AllocsPerRun(100, func() {
		if err := sys.EventFDAdd(fd); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a ring", n)
	}
}
