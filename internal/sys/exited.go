package sys

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Exited waits for at most d until the process behind a pidfd has ended, and reports whether it has.
func Exited(pidfd int, d time.Duration) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(d.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return false, os.NewSyscallError("poll", err)
		}
		return n > 0, nil
	}
}
