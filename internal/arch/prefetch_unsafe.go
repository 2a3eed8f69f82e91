package arch

import (
	"sync/atomic"
	"unsafe"
)

// PrefetchWrite asks for the cache line of p in a state that can be written, without
// waiting for it. It never faults and changes nothing that a program can see.
func PrefetchWrite(p *atomic.Uint64) {
	// Sound: only the address is used, as a hint.
	prefetchWrite((*byte)(unsafe.Pointer(p)))
}

// PrefetchRead asks for the cache line of p in a state that can be read, without
// waiting for it. It never faults and changes nothing that a program can see.
func PrefetchRead(p *atomic.Uint64) {
	// Sound: only the address is used, as a hint.
	prefetchRead((*byte)(unsafe.Pointer(p)))
}
