// Package control is the protocol between the broker and its clients: JSON
// messages over a SOCK_SEQPACKET Unix socket, with file descriptors as SCM_RIGHTS.
// docs/control-protocol.md describes it well enough to write a client in another
// language; the types of this package are that page in Go.
//
// One packet is one message of at most MaxMessage bytes. The first message is hello,
// both ways. After that the client sends requests, and each gets one reply with the
// same id; the broker may send events in between. Nothing of this is on the data
// path: a client that holds its descriptors needs the broker no more.
package control
