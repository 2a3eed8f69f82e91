package sys

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns what CLOCK_MONOTONIC says: the same for all processes of a host (of a time namespace), and never
// set back. Each call is a system call; time.Since goes on from one reading without any.
func Monotonic() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}
