// Package chaos holds what checks a bus whose processes are killed: frames that prove by their content who published
// them and that nothing is missing, workers that publish and read in processes of their own, and a Ledger that compares
// what all of them say.
//
//	worker process             checker process
//	Publish  ── Progress ──▶   Ledger.Published   what was tried, and what returned
//	Read     ── records  ──▶   Ledger.Consume     every frame, gap and eviction, in the reader's own order
//
// What a worker says must outlive its death by SIGKILL. A publisher therefore writes its progress into a shared
// segment, and a group member writes each record to its pipe before it acknowledges the frame. Other readers buffer:
// a dead subscriber owes nobody anything.
package chaos
