package sys

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// CloseInherited closes every descriptor above the standard ones that came to this process across exec, but those in
// keep: all that are not close-on-exec, which is what tells them from what this process has opened. For a
// process that outlives its parent: a pipe that it holds by accident would never end for the other side.
func CloseInherited(keep ...int) error {
	const firstFD = 3
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("which descriptors are open: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < firstFD || slices.Contains(keep, fd) {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 { // an error is the descriptor that read the folder
			continue
		}
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close descriptor %d: %w", fd, err)
		}
	}
	return nil
}
