//go:build race

package ring

import "unsafe"

// probe and copyOut as in racy_plain_unsafe.go, without what the race detector would see.

// probe loads the word at off. Callers that need its order against later loads use
// arch.LoadLoad, which the other build does not need on the processors that it knows.
//
//go:norace
func (m region) probe(off uint64) uint64 {
	m.inside(off, 8)
	return *(*uint64)(unsafe.Add(m.base, off))
}

// copyOut is a loop because the race detector looks into the built-in copy even where it is
// told to look away.
//
//go:norace
func (m region) copyOut(dst []byte, off uint64) {
	m.inside(off, uint64(len(dst)))
	src := unsafe.Slice((*byte)(unsafe.Add(m.base, off)), len(dst))
	for i := range dst {
		dst[i] = src[i]
	}
}
