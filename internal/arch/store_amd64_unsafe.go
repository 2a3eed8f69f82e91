//go:build amd64 && !purego && !race

package arch

import (
	"sync/atomic"
	"unsafe"
)

// StoreRelease stores v in *p with release ordering.
//
// sync/atomic's Store is an XCHG here, which waits until the store buffer is empty,
// so for the line to arrive from another core (some 100 ns). A plain MOV is a release
// store under x86's total store order, and does not wait. The Go compiler keeps the
// order of stores to memory that escapes, and emits one MOVQ for an aligned uint64:
// TestStoreReleaseIsOneInstruction looks at the code that it makes.
func StoreRelease(p *atomic.Uint64, v uint64) {
	// Sound: an atomic.Uint64 is one aligned 64-bit word and nothing else.
	*(*uint64)(unsafe.Pointer(p)) = v
}
