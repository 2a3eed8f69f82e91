// Package link carries payloads between two processes of this host by each of the
// systems that bench compares: pipes, sockets, NATS, Redis and the bus itself behind one
// interface, each used as its own users would use it.
package link
