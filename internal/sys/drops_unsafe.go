package sys

import (
	"encoding/binary"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DropsSpace is how many bytes of control messages the count of ParseDrops takes.
func DropsSpace() int { return unix.CmsgSpace(4) }

// ParseDrops finds, in the control messages of a datagram, how many datagrams its socket had dropped when this one was queued
// (CountDrops). There is none as long as nothing was dropped. The count has 32 bits, and wraps.
func ParseDrops(oob []byte) (n uint32, ok bool) {
	for len(oob) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0, false
		}
		if header.Level == unix.SOL_SOCKET && header.Type == unix.SO_RXQ_OVFL && len(data) >= 4 {
			return binary.NativeEndian.Uint32(data), true
		}
		oob = rest
	}
	return 0, false
}

// Words of SO_MEMINFO, in the kernel's order (include/uapi/linux/sock_diag.h).
const (
	memInfoDrops = 8
	memInfoWords = 9
)

// Drops returns how many datagrams a socket has dropped until now, those included behind which none has come to tell of
// them. The count has 32 bits, and wraps.
func Drops(fd int) (uint32, error) {
	var words [memInfoWords]uint32
	size := uint32(unsafe.Sizeof(words))
	// The kernel writes no more than size bytes to the array, and does not keep the pointers.
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&words)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt SO_MEMINFO", errno)
	}
	return words[memInfoDrops], nil
}
