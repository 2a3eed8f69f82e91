// Package ring is the multi-producer ring of hugebus: claim, commit, abort and
// copying publish on one side; poll, lossy reading, groups and repair on the
// other. It works over memory that the caller hands it, and neither maps nor
// dials anything, so the same code runs on a Go slice under the race detector
// and on a shared mapping in production.
//
// # Memory
//
// A ring is three pieces of memory (see docs/layout.md for every byte):
//
//	ctl      header, tail, one slot for each publisher     written by publishers
//	cursors  sleeper words, subscriber slots, groups       written by subscribers
//	data     frames and nothing else                       written by publishers
//
// # Protocol
//
// A position counts bytes since the ring began; it only grows, and is a multiple
// of CellSize. A publisher claims [tail, tail+n) by a compare-and-swap of tail, after
// it has checked that there is room and has written down in its own slot what
// it is about to claim (its intent). It writes frames there, and commits with one
// release store of the stamp of the first. The stamp is a keyed function of the
// position, so one load tells a reader whether the frame of this very lap is
// there. What a claim holds becomes visible as one.
//
// # Ordering
//
// Each pair of release and acquire has a name, and stands in the code as
// SYNC(name):
//
//	SYNC(commit)      stamp: publisher's release, reader's acquire
//	SYNC(cursor)      cursor, claim words: reader's release, publisher's acquire in the room check
//	SYNC(intent)      intent: publisher's release before tail moves, repair's acquire
//	SYNC(tail)        tail before payload: claim's release, lossy reader's acquire after its copy
//	SYNC(join-limit)  limit counter and active bits: both sides fully fenced
//	SYNC(group-claim) member's claim word before head, helper's and reaper's head before claim word
//	SYNC(orphan)      orphan entry before its bit, before the dead member's word is cleared
//	SYNC(evict)       eviction, before a claim that passes the evicted cursor; evicted reader's acquire
//	SYNC(sleep)       sleeper bit against commit; settled by package client (see docs/architecture.md)
//
// # Trust
//
// Memory that a peer can write is loaded once, checked, then used. A bad value is
// an error that says where it was, never a panic, a fault or an endless loop.
package ring
