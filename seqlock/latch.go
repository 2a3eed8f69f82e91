package seqlock

import (
	"fmt"
	"sync/atomic"
)

// Latch of n words in memory, in words of 8 bytes:
//
//	word     count  field    written by      read by  order
//	0            1  version  the one writer  anybody  sequentially consistent
//	1            n  copy 0   the one writer  anybody  atomic words
//	1+n          n  copy 1   the one writer  anybody  atomic words
//
// Copy number version mod 2 is the value. The other one is the writer's: it writes there, and then adds one to version.
// Linux's latch writes both copies each time, so that both sides of an interrupted write have to be told apart; here the
// copy that readers use is never touched, so that a writer may die at any word, and the next one simply starts again.

// Latch is a view of a value of some words with one writer at a time and any number of readers, which only read. It is
// small, refers to the memory and holds none: copy it freely.
//
// Wherever a writer stops, for a while or for ever, readers get the last whole value. No repair is needed: another writer
// calls Store.
type Latch struct {
	words []atomic.Uint64
	n     int
}

// LatchWords returns how many words of memory a latch over n words takes.
func LatchWords(n int) int { return 1 + 2*n }

// NewLatch returns the latch over words. It writes nothing: zeroed memory is a latch of zeros at version 0.
//
// Preconditions: len(words) is LatchWords(n) for some n of 1 or more; anything else is a bug in the caller, and panics.
func NewLatch(words []atomic.Uint64) Latch {
	n := (len(words) - 1) / 2
	if n < 1 || LatchWords(n) != len(words) {
		panic(fmt.Sprintf("seqlock: a latch takes 1+2n words for a value of n, not %d: use LatchWords", len(words)))
	}
	return Latch{words: words, n: n}
}

// Len returns the number of words of the value.
func (l Latch) Len() int { return l.n }

// Store makes src the value. One caller at a time, in all processes together.
//
// Preconditions: len(src) is Len().
func (l Latch) Store(src []uint64) {
	mustFit(len(src), l.n)
	v := l.words[0].Load()
	copyIn(l.half(v+1), src)
	// SYNC(latch): release. Who sees the new version sees all of the new copy. And no store of the next Store, which
	// goes to the copy that was the value until now, is seen before it: that is SYNC(latch-reuse): release.
	l.words[0].Store(v + 1)
}

// Load copies the value into dst and returns its version, which Store raises by one (it wraps). Not ok, after a thousand
// tries: each time a whole Store came in between, which means a writer that does nothing else, or hostile memory; dst
// then holds anything.
//
// Preconditions: len(dst) is Len().
func (l Latch) Load(dst []uint64) (version uint64, ok bool) {
	mustFit(len(dst), l.n)
	for range maxTries {
		// SYNC(latch): acquire.
		v := l.words[0].Load()
		copyOut(dst, l.half(v))
		// SYNC(latch-reuse): acquire. Had a load above seen a store of the write after the next, then this sees the
		// version that came before it.
		if l.words[0].Load() == v {
			return v, true
		}
	}
	return 0, false
}

// Version returns the current version: a cheap look at whether there is something new.
func (l Latch) Version() uint64 { return l.words[0].Load() }

// half returns the copy that holds the value at version v.
func (l Latch) half(v uint64) []atomic.Uint64 {
	at := 1 + int(v&1)*l.n
	return l.words[at : at+l.n]
}

func copyIn(dst []atomic.Uint64, src []uint64) {
	dst = dst[:len(src)]
	for i, w := range src {
		dst[i].Store(w)
	}
}

func copyOut(dst []uint64, src []atomic.Uint64) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = src[i].Load()
	}
}

// mustFit panics if a caller's slice does not have the value's length, which no peer has a say in.
func mustFit(got, want int) {
	if got != want {
		panic(fmt.Sprintf("seqlock: a slice of %d words for a value of %d", got, want))
	}
}
