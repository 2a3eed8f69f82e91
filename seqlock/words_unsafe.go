package seqlock

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Words returns b, or as much of it as makes whole words, as atomic words of 8 bytes in the host's byte order. The result
// keeps heap memory alive, but not a mapping: unmap b only after the last use. It is an error if b does not start at a
// multiple of 8, which heap slices may do and mappings never.
func Words(b []byte) ([]atomic.Uint64, error) {
	if len(b) < 8 {
		return nil, nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if off := uintptr(p) % 8; off != 0 {
		return nil, fmt.Errorf("seqlock: words: memory starts %d bytes past a multiple of 8: give an aligned slice", off)
	}
	// Sound: aligned as checked above, the length stays within b, atomic.Uint64 has size 8 and no pointers in it.
	return unsafe.Slice((*atomic.Uint64)(p), len(b)/8), nil
}
