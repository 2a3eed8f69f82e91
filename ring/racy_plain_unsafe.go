//go:build !race

package ring

import "unsafe"

// probe and copyOut read memory that a publisher may be writing at the same time: the
// look whether a cell holds a frame's start, and a lossy reader's copy. What they return is
// used only if something proves afterwards that nobody had come that far: tail for who
// does not gate (SYNC(tail)), the compare-and-swap of its head for a group. The race
// detector cannot know that, so in its build they are written so that it looks away.

// probe loads the word at off, with acquire ordering. It is an atomic load for the
// compiler's sake, which may exchange two plain ones; for amd64 they are the same.
func (m region) probe(off uint64) uint64 { return m.word(off).Load() }

// copyOut copies len(dst) bytes from off.
func (m region) copyOut(dst []byte, off uint64) {
	m.inside(off, uint64(len(dst)))
	copy(dst, unsafe.Slice((*byte)(unsafe.Add(m.base, off)), len(dst)))
}
