package sys

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// soPeerPIDFD is SO_PEERPIDFD (Linux 6.5), on amd64 and arm64 alike.
const soPeerPIDFD = 77

// PeerCred returns who was at the other end of the Unix socket fd when it was connected: process id (0 where the
// peer's is not visible from our pid namespace), user and group. See SO_PEERCRED in unix(7).
func PeerCred(fd int) (pid int32, uid, gid uint32, err error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, 0, 0, os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	return c.Pid, c.Uid, c.Gid, nil
}

// PeerPIDFD returns a pidfd for the process at the other end of the Unix socket fd. Unlike a process id it cannot
// come to mean another process. The caller closes it. Kernels before 6.5 answer ENOPROTOOPT; a peer that has died
// already gives ESRCH or, in some kernels, EINVAL or ENODATA.
func PeerPIDFD(fd int) (int, error) {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, soPeerPIDFD)
	if err != nil {
		return -1, os.NewSyscallError("getsockopt SO_PEERPIDFD", err)
	}
	return pidfd, nil
}

// PeerDied reports whether the process at the other end of the Unix socket fd has ended. known is false where the kernel
// cannot tell (before 6.5). For one that connected, the other end is the process that called Listen last.
func PeerDied(fd int) (died, known bool) {
	pidfd, err := PeerPIDFD(fd)
	switch {
	case err == nil:
		defer CloseFD(pidfd)
		died, err = Exited(pidfd, 0)
		return died, err == nil
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODATA):
		return true, true
	}
	return false, false
}

// Listen makes the calling process the one that those who connect to the socket fd see as their peer, also when it
// listens already: a listening socket that outlived its process. The queue is as long as net.core.somaxconn allows.
func Listen(fd int) error {
	const longest = 1 << 16
	return os.NewSyscallError("listen", unix.Listen(fd, longest))
}
