package sys

import (
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
