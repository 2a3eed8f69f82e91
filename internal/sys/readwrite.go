package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Read reads what a non-blocking descriptor has, up to len(b) bytes, and goes on after a signal. It returns 0 and a nil
// error at the end of the stream, and -1 and unix.EAGAIN where there is nothing to read now. Errors are plain
// unix.Errno values, because this is called once for every turn of a connection.
func Read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Unread returns how many bytes a stream socket has received that nobody has read yet (man 7 tcp, SIOCINQ; TIOCINQ is the same number).
func Unread(fd int) (int, error) {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0, os.NewSyscallError("ioctl SIOCINQ", err)
	}
	return n, nil
}

// AtEOF says whether a stream socket's peer has closed its side and nothing is left to read. It takes no bytes, and
// does not wait.
func AtEOF(fd int) bool {
	var b [1]byte
	for {
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return n == 0 && err == nil
		}
	}
}

// Readable says whether a read (on a listening socket: an accept) would find something now: bytes, a connection, the end
// or an error. It does not wait.
func Readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return n > 0 && err == nil
		}
	}
}
