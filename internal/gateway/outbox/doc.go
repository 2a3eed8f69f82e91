// Package outbox sends to many slow or fast peers what was encoded once. A Tape holds encoded frames in blocks of shared,
// reference-counted memory; an Outbox is one peer's end: it writes what it can at once, with one writev whose vectors
// point into those blocks, and queues references to the rest. A frame is never copied for a peer.
//
// A peer that does not read holds blocks. How many bytes each may hold is bounded; beyond that a peer is skipped forward
// (what stood in its queue is dropped, all but the rest of a frame that was begun, and it is told by a gap marker), or
// its connection is closed.
package outbox
