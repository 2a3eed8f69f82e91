package sys

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dup returns another descriptor for the open file fd, close-on-exec. Position, flags and locks stay shared.
func Dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
	}
	return n, nil
}

// SetNonblock makes reads and writes of the open file fd return EAGAIN instead of waiting, for everybody who holds a
// descriptor of it.
func SetNonblock(fd int) error {
	return os.NewSyscallError("fcntl F_SETFL", unix.SetNonblock(fd, true))
}

// DescriptorName returns what /proc/self/fd says that fd is: a path, or a name such as "anon_inode:[eventfd]" or
// "/memfd:orders (deleted)".
func DescriptorName(fd int) (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
}
