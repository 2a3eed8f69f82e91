package seqlock

import "sync/atomic"

// The counter's word, when a Lock uses it:
//
//	bits    meaning
//	 0      1: held, 0: free
//	 0..47  sequence: grows by one with each lock and each unlock, and wraps
//	48..63  number of the holder while held, 0 while free
//
// Holder and sequence share a word so that there is no instant at which a lock is held and nobody can say by whom.

const (
	ownerShift = 48
	seqMask    = 1<<ownerShift - 1
)

// Lock is a view of some words that several writers change in turn and that readers read without writing anything. It is
// small, refers to the memory and holds none: copy it freely.
//
// Writers have numbers, unique among the living (a publisher's slot, say). TryLock never waits. A writer that dies while
// it holds the lock makes loads fail and TryLock refuse until somebody calls TakeOver or Reset: Holder says for whom.
// All methods may be called concurrently.
type Lock struct {
	seq   *Counter
	words []atomic.Uint64
}

// NewLock returns the lock over seq and words, which the caller lays out as it likes. It writes nothing: zeroed memory is
// a free lock over a value of zeros.
func NewLock(seq *Counter, words []atomic.Uint64) Lock { return Lock{seq: seq, words: words} }

// Words returns the guarded words. The holder of the lock stores to them one by one; others use Load.
func (l Lock) Words() []atomic.Uint64 { return l.words }

// TryLock takes the lock for writer number owner, and reports whether it did. False: somebody holds it, or took it at
// the same time.
func (l Lock) TryLock(owner uint16) bool {
	v := l.seq.v.Load()
	// SYNC(lock-begin): release. As in Counter.Begin, for the loads of Lock.Load.
	return Even(v) && l.seq.v.CompareAndSwap(v, held(owner, v+1))
}

// Unlock frees the lock that owner holds. False means that owner does not hold it (any more): it was taken over, or the
// memory was damaged, and what owner wrote may be mixed with what others wrote.
func (l Lock) Unlock(owner uint16) bool {
	v := l.seq.v.Load()
	if v != held(owner, v) || Even(v) {
		return false
	}
	// SYNC(lock-end): release. Who sees the new value sees what the holder wrote. A swap and not a store, so that a
	// holder that was taken over does not free the lock under the new one.
	return l.seq.v.CompareAndSwap(v, (v+1)&seqMask)
}

// TryStore takes the lock for owner, copies src into the words and frees it. It reports whether all of that happened; if
// not, TryLock refused and nothing was written, or the lock was taken over meanwhile.
//
// Preconditions: len(src) is the number of words.
func (l Lock) TryStore(owner uint16, src []uint64) bool {
	mustFit(len(src), len(l.words))
	if !l.TryLock(owner) {
		return false
	}
	copyIn(l.words, src)
	return l.Unlock(owner)
}

// Load copies a whole value into dst. The version differs from that of any other value, until 2^47 more have been
// written. Not ok: somebody was writing at every one of a thousand looks, holds the lock and is not running, died with it
// (see Holder), or the memory is hostile; dst then holds anything. Yield before trying again.
//
// Preconditions: len(dst) is the number of words.
func (l Lock) Load(dst []uint64) (version uint64, ok bool) {
	mustFit(len(dst), len(l.words))
	for range maxTries {
		// SYNC(lock-end): acquire.
		v := l.seq.v.Load()
		if !Even(v) {
			continue
		}
		copyOut(dst, l.words)
		// SYNC(lock-begin): acquire.
		if l.seq.v.Load() == v {
			return v, true
		}
	}
	return 0, false
}

// Holder returns the number of the writer that holds the lock, if one does. With the list of the dead, that is how a
// repairer finds what to take over.
func (l Lock) Holder() (owner uint16, locked bool) {
	v := l.seq.v.Load()
	if Even(v) {
		return 0, false
	}
	return uint16(v >> ownerShift), true
}

// TakeOver gives the lock that the dead writer holds to owner, without freeing it in between, and reports whether it
// did. The words may be half written: owner stores all of them before it calls Unlock. Only when dead is known to be
// dead; several repairers may try, and one succeeds, unless they use the dead one's own number.
func (l Lock) TakeOver(dead, owner uint16) bool {
	v := l.seq.v.Load()
	if v != held(dead, v) || Even(v) {
		return false
	}
	return l.seq.v.CompareAndSwap(v, held(owner, v+2))
}

// Reset is TakeOver, a store of src and Unlock: it makes the value whole after its writer died. False: dead did not hold
// the lock, and nothing was written.
//
// Preconditions: len(src) is the number of words.
func (l Lock) Reset(dead, owner uint16, src []uint64) bool {
	mustFit(len(src), len(l.words))
	if !l.TakeOver(dead, owner) {
		return false
	}
	copyIn(l.words, src)
	return l.Unlock(owner)
}

// held is the counter's value for the sequence in v with owner as the holder.
func held(owner uint16, v uint64) uint64 { return uint64(owner)<<ownerShift | v&seqMask }
