//go:build arm64 && !purego && !race

package arch

// Assembly is true where this build uses the processor's own instructions.
const Assembly = true

// Pause executes n ISB instructions. YIELD is a no-op on most arm64 cores; ISB waits
// for the pipeline to drain, some tens of nanoseconds, much like PAUSE on x86.
//
//go:noescape
func Pause(n uint32)

// prefetchWriteRun is prefetchWrite for the four lines from p on.
//
//go:noescape
func prefetchWriteRun(p *byte)

// prefetchWrite asks for the cache line of p in a state that can be written (PRFM PSTL1KEEP).
//
//go:noescape
func prefetchWrite(p *byte)

// prefetchRead asks for the cache line of p in a state that can be read (PRFM PLDL1KEEP).
//
//go:noescape
func prefetchRead(p *byte)

// StoreStore orders earlier stores before later ones (DMB ISHST).
func StoreStore()

// LoadLoad orders earlier loads before later ones (DMB ISHLD).
func LoadLoad()
