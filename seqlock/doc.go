// Package seqlock holds three ways to share a few words between one or more writers and readers that may only read:
//
//   - [Counter]: a sequence counter. It is odd while its one writer writes. Readers retry, the writer never waits.
//   - [Lock]: a counter that several writers take turns at, with the holder's number in it, so that a dead one is known.
//   - [Latch]: two copies and a counter. A writer that dies in the middle of a write never blocks a reader.
//
// Choose the latch where readers must always get an answer, the lock where there are several writers, and the bare
// counter where the value is the caller's own fields and a failed read is an answer as well ("it is being changed").
//
// Nothing here allocates, maps memory or makes a system call: the caller hands in the words, on the heap or in a
// mapping, and the same code runs on both. All data moves through atomic words, so it is clean under the race detector.
//
// Nothing here trusts the memory either. Another process can write any value at any time, so every loop over what the
// memory says ends after a fixed number of tries and then answers false. What the words mean is for the caller to check.
//
// The idea of the counter and of the latch is that of Linux's seqcount_t and seqcount_latch_t
// (Documentation/locking/seqlock.rst); the order of the atomic steps follows H.-J. Boehm, "Can Seqlocks Get Along With
// Programming Language Memory Models?", MSPC 2012.
package seqlock

// maxTries bounds every retry. A read of eight words takes some ten nanoseconds, so that this is long enough to outlast
// a writer that is running, and short enough (some ten microseconds) that a dead or hostile one costs nothing.
const maxTries = 1024
