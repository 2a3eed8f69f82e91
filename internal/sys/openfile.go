package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// kcmpFile is KCMP_FILE of kcmp(2): compare the open files behind two descriptors.
const kcmpFile = 0

// SameOpenFile reports whether two descriptors of this process stand for one open file (open file description in
// open(2)), as after dup. Two eventfds, or one file opened twice, are not the same. Kernels before 6.10 need kcmp(2):
// ENOSYS or EPERM where they lack it or a filter forbids it.
func SameOpenFile(a, b int) (bool, error) {
	same, err := unix.FcntlInt(uintptr(a), unix.F_DUPFD_QUERY, b)
	if err == nil {
		return same == 1, nil
	}
	if err != unix.EINVAL {
		return false, os.NewSyscallError("fcntl F_DUPFD_QUERY", err)
	}
	pid := uintptr(os.Getpid())
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, uintptr(a), uintptr(b), 0)
	if errno != 0 {
		return false, os.NewSyscallError("kcmp", errno)
	}
	return order == 0, nil
}

// An Inode names what is behind a descriptor. Descriptors of one open file have the same; the reverse is not true: all
// eventfds share one.
type Inode struct{ Device, Number uint64 }

// InodeOf returns the inode of fd.
func InodeOf(fd int) (Inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Inode{}, os.NewSyscallError("fstat", err)
	}
	return Inode{Device: st.Dev, Number: st.Ino}, nil
}

// HungUp reports whether the other end of the socket fd is closed, also when data that it sent before waits unread.
func HungUp(fd int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP is always reported
	for {
		_, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			continue
		}
		return fds[0].Revents&unix.POLLHUP != 0, os.NewSyscallError("poll", err)
	}
}

// RaiseFileLimit sets the limit of open files of this process (RLIMIT_NOFILE) as high as it may without privileges,
// and returns it.
func RaiseFileLimit() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, os.NewSyscallError("getrlimit RLIMIT_NOFILE", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, os.NewSyscallError("setrlimit RLIMIT_NOFILE", err)
	}
	return limit.Cur, nil
}
