package broker

import (
	"sync/atomic"
	"unsafe"
)

// putWord stores a word into shared memory as another process would. The memory is a
// mapping, and at is a multiple of 8, so the word is aligned.
func putWord(memory []byte, at int, v uint64) {
	(*atomic.Uint64)(unsafe.Pointer(&memory[at])).Store(v)
}
