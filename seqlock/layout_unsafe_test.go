package seqlock

import (
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestCounterIsOneWord(t *testing.T) {
	if s, a := unsafe.Sizeof(Counter{}), unsafe.Alignof(Counter{}); s != 8 || a != 8 {
		t.Fatalf("size %d, alignment %d; want 8, 8", s, a)
	}
	if o := unsafe.Offsetof(Counter{}.v); o != 0 {
		t.Fatalf("offset of the word is %d, want 0", o)
	}
}

// counterAt places a Counter in a word of memory, as a shared struct with a Counter in it does.
func counterAt(w *atomic.Uint64) *Counter { return (*Counter)(unsafe.Pointer(w)) }

// plain returns the same memory as words that copy stores to directly.
func plain(words []atomic.Uint64) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(words))), len(words))
}
