package sys

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Replace puts private memory of zeros, readable and writable, in the place of the pages b of a mapping, while other
// threads may be using them. When it returns, no store of this process by way of b reaches what was mapped there: stores that came
// before are done, later ones go to the private memory (mmap(2), MAP_FIXED; the kernel flushes the translations of all
// processors). b starts and ends at pages of the mapping, huge ones where it has those. ENOMEM: nothing was replaced.
func Replace(b []byte) error {
	// Sound: b is a mapping that the caller owns, and stays one of the same size at the same place.
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED)
	return os.NewSyscallError("mmap MAP_FIXED", err)
}
