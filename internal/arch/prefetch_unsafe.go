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

// PrefetchRun is how many bytes PrefetchWriteRun asks for: four lines.
const PrefetchRun = 4 * CacheLine

// PrefetchWriteRun is PrefetchWrite for the PrefetchRun bytes from p on, for less than
// four calls cost. p must be a multiple of CacheLine.
func PrefetchWriteRun(p *atomic.Uint64) {
	// Sound: only the address is used, as a hint.
	prefetchWriteRun((*byte)(unsafe.Pointer(p)))
}

// PrefetchRead asks for the cache line of p in a state that can be read, without
// waiting for it. It never faults and changes nothing that a program can see.
func PrefetchRead(p *atomic.Uint64) {
	// Sound: only the address is used, as a hint.
	prefetchRead((*byte)(unsafe.Pointer(p)))
}
