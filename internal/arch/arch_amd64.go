//go:build amd64 && !purego && !race

package arch

// Assembly is true where this build uses the processor's own instructions.
const Assembly = true

// Pause executes n PAUSE instructions (about 40 to 140 cycles each, by model),
// which tells the core that it spins: a sibling thread and the power budget gain.
//
//go:noescape
func Pause(n uint32)

// prefetchWriteRun is prefetchWrite for the four lines from p on.
//
//go:noescape
func prefetchWriteRun(p *byte)

// prefetchWrite asks for the cache line of p in a state that can be written (PREFETCHW).
//
//go:noescape
func prefetchWrite(p *byte)

// prefetchRead asks for the cache line of p in a state that can be read (PREFETCHT0).
//
//go:noescape
func prefetchRead(p *byte)

// StoreStore orders earlier stores before later ones: on amd64 every store already is
// (total store order), so it costs nothing.
func StoreStore() {}

// LoadLoad orders earlier loads before later ones: on amd64 every load already is.
func LoadLoad() {}
