//go:build (!amd64 && !arm64) || purego || race

package arch

import "sync/atomic"

// Assembly is true where this build uses the processor's own instructions.
const Assembly = false

// fence is the word that the portable barriers write: a sequentially consistent
// read-modify-write orders everything before it before everything after it.
var fence atomic.Uint64

// Pause waits for about n spin-wait hints, without an instruction for it.
func Pause(n uint32) {
	for range n {
		_ = fence.Load()
	}
}

func prefetchWrite(*byte) {}

func prefetchWriteRun(*byte) {}

func prefetchRead(*byte) {}

// StoreStore orders earlier stores before later ones.
func StoreStore() { fence.Add(1) }

// LoadLoad orders earlier loads before later ones.
func LoadLoad() { fence.Add(1) }
