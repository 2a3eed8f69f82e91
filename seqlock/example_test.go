package seqlock_test

import (
	"fmt"
	"sync/atomic"

	"github.com/hugebus/hugebus/seqlock"
)

// A writer guards a value that it recomputes now and then; a reader takes a failed read as "being changed just now".
func ExampleCounter() {
	var shared struct { // in practice a struct laid over shared memory
		seq   seqlock.Counter
		limit atomic.Uint64
	}

	shared.seq.Begin()
	shared.limit.Store(4096)
	shared.seq.End()

	if v, ok := shared.seq.ReadBegin(); ok {
		limit := shared.limit.Load()
		if !shared.seq.ReadRetry(v) {
			fmt.Println("limit", limit)
		}
	}
	// Output: limit 4096
}

// Two writers take turns. One dies with the lock, is named by it, and its value is made whole.
func ExampleLock() {
	var seq seqlock.Counter
	words := make([]atomic.Uint64, 2)
	lock := seqlock.NewLock(&seq, words)

	fmt.Println("stored:", lock.TryStore(1, []uint64{10, 20}))

	lock.TryLock(2)
	lock.Words()[0].Store(11) // and here writer 2 dies

	value := make([]uint64, 2)
	_, ok := lock.Load(value)
	dead, _ := lock.Holder()
	fmt.Println("readable:", ok, "held by:", dead)

	lock.Reset(dead, 1, []uint64{0, 0})
	_, ok = lock.Load(value)
	fmt.Println("readable:", ok, value)
	// Output:
	// stored: true
	// readable: false held by: 2
	// readable: true [0 0]
}

func ExampleLatch() {
	const n = 3
	latch := seqlock.NewLatch(make([]atomic.Uint64, seqlock.LatchWords(n)))

	latch.Store([]uint64{1, 2, 3})

	value := make([]uint64, n)
	if version, ok := latch.Load(value); ok {
		fmt.Println("version", version, value)
	}
	// Output: version 1 [1 2 3]
}

func ExampleWords() {
	memory := make([]byte, 64) // or the bytes of a mapping
	words, err := seqlock.Words(memory)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(words), "words")
	// Output: 8 words
}
