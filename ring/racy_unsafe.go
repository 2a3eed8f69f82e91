package ring

import "unsafe"

// probe and copyOut read memory that a publisher may be writing at the same time: the
// look whether a cell holds a frame's start, and a lossy reader's copy. What they return is
// used only if something proves afterwards that nobody had come that far: tail for who
// does not gate (SYNC(tail)), the compare-and-swap of its head for a group. The race
// detector cannot know that, so it is told to look away.

// probe loads the word at off. An aligned 64-bit load is one instruction on amd64 and
// arm64; callers that need its order against later loads use arch.LoadLoad.
//
//go:norace
func (m region) probe(off uint64) uint64 {
	m.inside(off, 8)
	return *(*uint64)(unsafe.Add(m.base, off))
}
