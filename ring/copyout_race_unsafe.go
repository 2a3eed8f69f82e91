//go:build race

package ring

import "unsafe"

// copyOut copies len(dst) bytes from off. It is a loop because the race detector looks
// into the built-in copy even where it is told to look away.
//
//go:norace
func (m region) copyOut(dst []byte, off uint64) {
	m.inside(off, uint64(len(dst)))
	src := unsafe.Slice((*byte)(unsafe.Add(m.base, off)), len(dst))
	for i := range dst {
		dst[i] = src[i]
	}
}
