// Package gateway connects TCP to the bus. Its Ingress accepts connections, cuts their streams into frames and publishes
// these in batches.
//
// # How a byte travels
//
// Each connection is a goroutine, asleep in the netpoller until its socket is readable: an idle connection holds a small
// stack and no buffer. A readable one borrows a worker (a large buffer and a lane, which is one publisher of the topic),
// reads as much as there is, has a codec mark the whole frames where they lie in the buffer, publishes them with one
// claim and one copy, and gives the worker back. Only the beginning of a frame that has not come whole stays with its
// connection, in memory of at most twice the bytes that came (and at least 64). Nothing is claimed in the ring before a
// frame is here whole, so a slow sender holds up nobody.
//
// There are few workers. Connections wait for one in the order in which they became readable, and give it back after a
// budget of bytes if another one waits, so no sender can crowd out the others.
//
// When the topic is full, publishing blocks with the worker in hand; no worker, no reading; the sockets fill up and TCP
// slows the senders down. Nothing is dropped.
//
// # Stopping
//
// When the context of Serve is cancelled, the ingress accepts what stands in the listen queue, reads what every socket
// had received by then, publishes each whole frame of it, and reports how many bytes of torn frames were left. If the
// topic is full this waits for room; Abort, or Config.DrainTimeout, ends that wait, and the frames that were given up are
// counted.
package gateway
