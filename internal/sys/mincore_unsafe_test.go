package sys_test

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resident returns how many pages of the mapping b are in memory, as mincore(2) says.
func resident(t *testing.T, b []byte) int {
	t.Helper()
	vec := make([]byte, len(b)/os.Getpagesize())
	// Sound: the kernel writes one byte a page into vec.
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		t.Fatal(errno)
	}
	n := 0
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}
