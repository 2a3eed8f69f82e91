package sys

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRightsRoundTrip(t *testing.T) {
	if Rights(nil) != nil {
		t.Error("no descriptors need control data")
	}
	oob := Rights([]int{3, 7, 9})
	if len(oob) > RightsSpace(3) {
		t.Errorf("%d bytes, more than the room of %d", len(oob), RightsSpace(3))
	}
	fds, err := ParseRights(oob, 0)
	if err != nil || len(fds) != 3 || fds[0] != 3 || fds[1] != 7 || fds[2] != 9 {
		t.Errorf("%v, %v", fds, err)
	}
	fds, err = ParseRights(oob, unix.MSG_CTRUNC)
	if !errors.Is(err, ErrControlCut) || len(fds) != 3 {
		t.Errorf("cut off: %v, %v; the descriptors that came must be returned too", fds, err)
	}
	if fds, err := ParseRights(nil, 0); err != nil || fds != nil {
		t.Errorf("nothing: %v, %v", fds, err)
	}
	if !MessageCut(unix.MSG_TRUNC) || MessageCut(unix.MSG_CTRUNC) {
		t.Error("MessageCut does not tell MSG_TRUNC from others")
	}
}

func TestCloseFD(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := CloseFD(fd); err != nil {
		t.Fatal(err)
	}
	if err := CloseFD(fd); !errors.Is(err, unix.EBADF) {
		t.Errorf("a second time: %v", err)
	}
}
