package client_test

import (
	"sync/atomic"
	"unsafe"
)

// wordAt is the word at off of a mapping. Sound: mappings are aligned, and tests use multiples of 8.
func wordAt(b []byte, off int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&b[off])) }
