// Package broker is the control side of hugebus: it makes topics, hands their memory out
// as file descriptors, decides who may have them, notices deaths and repairs what the
// dead left, and reports figures. No frame passes through it, and what is attached
// goes on without it.
//
// Who runs it embeds it:
//
//	b, err := broker.New(broker.Config{Socket: "/tmp/h.sock"})
//	err = b.Serve(ctx) // until ctx ends
//
// One goroutine serves one client. Locks, in the order in which they may be taken: a
// topic's, then that of its dead-letter topic, then the ledger's or the catalogue's; none is
// held while anything is sent, or while memory is made.
package broker
