// Package egress pushes a topic to many clients over TCP, TLS or Unix sockets.
//
// # How a frame travels
//
// One goroutine reads the topic, whoever many clients there are, and encodes each frame once, into blocks of memory that
// all clients share. It hands them to a few writers, each of which has its share of the clients and sends them what
// has come: one writev for each client, with vectors that point into the shared blocks. What a client does not take at
// once waits in its outbox, as references. So frames are copied once, not once for each client; the ring's memory is
// free again as soon as that copy is made, and no client can hold publishers up.
//
// Writers hold the reader up when they are behind, so a topic that is read reliably slows its publishers down when
// this process, not some client, is too slow.
//
// # Slow clients
//
// For a client that does not read, at most MaxLag bytes wait. Beyond that it is skipped forward and told so by a gap
// marker (see codec.Marker), or closed. It is named in the log and in Slowest.
package egress
