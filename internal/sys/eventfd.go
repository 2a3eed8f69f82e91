package sys

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// eventOne is the number 1 as eventfd wants it: eight bytes in host order.
var eventOne = binary.NativeEndian.AppendUint64(nil, 1)

// EventFD returns a new event descriptor whose counter is 0. It is non-blocking (the Go netpoller only watches
// those, and whoever rings must never wait) and close-on-exec. The caller owns it. See eventfd(2).
func EventFD() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("eventfd2", err)
	}
	return fd, nil
}

// EventFDAdd adds 1 to the counter of fd, which wakes everybody who watches fd edge-triggered, whatever the counter
// was before. It allocates nothing when it succeeds.
//
// Nobody who watches needs to read the counter, so nothing but 2^64 rings (or a hostile peer) can fill it; a full
// counter would swallow the wake-up, so it is emptied and the write tried again. The tries are bounded: a peer that
// fills the counter faster than it is emptied gets us an EAGAIN, not an endless loop.
func EventFDAdd(fd int) error {
	var err error
	for range 8 {
		_, err = unix.Write(fd, eventOne)
		switch err {
		case nil:
			return nil
		case unix.EINTR:
		case unix.EAGAIN:
			var sink [8]byte
			// The result does not matter: if somebody else emptied it first, there is room too.
			_, _ = unix.Read(fd, sink[:])
		default:
			return os.NewSyscallError("write eventfd", err)
		}
	}
	return os.NewSyscallError("write eventfd", err)
}
