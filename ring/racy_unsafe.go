package ring

import "unsafe"

// The two functions here read memory that a publisher may be writing at the same
// time: a lossy reader's copy, and the look whether a cell holds a frame's start. What
// they return is used only if a later look at tail proves that nobody had come that
// far (SYNC(tail)). The race detector cannot know that, so it is told to look away;
// the code is the same in every build.

// probe loads the word at off. An aligned 64-bit load is one instruction on amd64 and
// arm64; callers that need its order against later loads use arch.LoadLoad.
//
//go:norace
func (m region) probe(off uint64) uint64 {
	m.inside(off, 8)
	return *(*uint64)(unsafe.Add(m.base, off))
}

// copyOut copies len(dst) bytes from off.
//
//go:norace
func (m region) copyOut(dst []byte, off uint64) {
	m.inside(off, uint64(len(dst)))
	copy(dst, unsafe.Slice((*byte)(unsafe.Add(m.base, off)), len(dst)))
}
