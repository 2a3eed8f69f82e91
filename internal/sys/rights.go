package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrControlCut means that the kernel had to cut control data off, so that descriptors may be missing (MSG_CTRUNC).
var ErrControlCut = errors.New("control data was cut off: descriptors are missing")

// Rights packs descriptors into the control data of one message (SCM_RIGHTS in unix(7)). The descriptors stay the
// caller's.
func Rights(fds []int) []byte {
	if len(fds) == 0 {
		return nil
	}
	return unix.UnixRights(fds...)
}

// RightsSpace is the room that control data with n descriptors needs.
func RightsSpace(n int) int { return unix.CmsgSpace(4 * n) }

// ParseRights returns every descriptor that control data carries; the caller owns them, also when there is an error
// besides. The flags are those that recvmsg returned: control data that was cut off is ErrControlCut.
func ParseRights(oob []byte, flags int) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, os.NewSyscallError("parse control data", err)
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_RIGHTS {
			continue
		}
		got, perr := unix.ParseUnixRights(&m)
		if perr != nil {
			err = os.NewSyscallError("parse SCM_RIGHTS", perr)
		}
		fds = append(fds, got...)
	}
	if flags&unix.MSG_CTRUNC != 0 {
		err = ErrControlCut
	}
	return fds, err
}

// MessageCut reports whether recvmsg's flags say that the message was longer than the buffer (MSG_TRUNC).
func MessageCut(flags int) bool { return flags&unix.MSG_TRUNC != 0 }

// CloseFD closes a bare descriptor.
func CloseFD(fd int) error { return unix.Close(fd) }
