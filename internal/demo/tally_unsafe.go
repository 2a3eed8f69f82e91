package demo

import (
	"sync/atomic"
	"unsafe"
)

// wordsOf views memory as words. It is sound because atomic.Uint64 is eight bytes without pointers for which every
// value is good, and because a mapping begins at a page and lives longer than its Tally's use of the view.
func wordsOf(b []byte) []atomic.Uint64 {
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}
