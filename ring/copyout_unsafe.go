//go:build !race

package ring

import "unsafe"

// copyOut copies len(dst) bytes from off.
func (m region) copyOut(dst []byte, off uint64) {
	m.inside(off, uint64(len(dst)))
	copy(dst, unsafe.Slice((*byte)(unsafe.Add(m.base, off)), len(dst)))
}
