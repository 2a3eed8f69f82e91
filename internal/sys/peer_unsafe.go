package sys

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is the kernel's NGROUPS_MAX.
const maxGroups = 65536

// PeerGroups returns the supplementary groups that the process at the other end of the Unix socket fd had when it
// connected, in the kernel's order; none is an empty slice. See SO_PEERGROUPS in unix(7). ENODATA where the socket
// has no peer.
func PeerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 32)
	for {
		// The length is in bytes, both ways. With ERANGE the kernel says in it how much it needs.
		size := uint32(len(groups) * 4)
		// Sound: the kernel writes at most size bytes, all inside groups, which escapes to this call only.
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:min(int(size/4), len(groups))], nil
		case errno == unix.ERANGE && int(size/4) > len(groups) && size/4 <= maxGroups:
			groups = make([]uint32, size/4)
		default:
			return nil, os.NewSyscallError("getsockopt SO_PEERGROUPS", errno)
		}
	}
}
