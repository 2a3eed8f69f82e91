package testutil

import "unsafe"

// alignment is what shared memory is laid out for: two cache lines, which processors fetch together.
const alignment = 128

// AlignedBytes returns n zeroed bytes of heap memory that start at a multiple of 128, as mappings do and ordinary slices
// need not, so that a suite can run under the race detector.
func AlignedBytes(n int) []byte {
	b := make([]byte, n+alignment-1)
	// Sound: only the address's remainder is used, and Go's heap does not move.
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % alignment)
	return b[skip : skip+n : skip+n]
}
