package sys

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxNodes is the largest number of NUMA nodes that a kernel can be built for (MAX_NUMNODES).
const maxNodes = 1024

// BindNode makes pages of the mapping b come from the NUMA node and from no other. It holds for pages that are not
// there yet, so call it before Populate; for shared memory it holds for whoever touches them first, in any process.
// See MPOL_BIND in mbind(2). EINVAL: there is no such node; ENOSYS: a kernel without NUMA.
func BindNode(b []byte, node int) error {
	if node < 0 || node >= maxNodes {
		return fmt.Errorf("mbind: node %d is not in 0 to %d", node, maxNodes-1)
	}
	var mask [maxNodes / 64]uint64
	mask[node/64] = 1 << (node % 64)
	// Sound: b is a mapping of len(b) bytes, mask is read by the kernel during the call only. The kernel wants one
	// more than the number of bits.
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MPOL_BIND, uintptr(unsafe.Pointer(&mask[0])), maxNodes+1, 0)
	if errno != 0 {
		return os.NewSyscallError("mbind", errno)
	}
	return nil
}
