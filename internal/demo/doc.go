// Package demo shows the bus at work on one host, with nothing set up, and checks that it kept its promises.
//
//	this process                                   processes of their own
//	feeder ──TCP──▶ ingress ──▶ topic in shared ──▶ worker 1 ┐ a group: each frame goes to one of them
//	broker                      memory          ──▶ worker 2 ┘
//	                                            ──▶ subscriber: sees every frame, in order
//
// Frames are numbered, stamped with the time of sending, of mixed size, and carry a checksum. Each reader marks what it
// has seen in a Tally, memory that it shares with this process and that outlives it: what a killed worker had done is
// known.
//
// A run has three parts. At first frames are sent as fast as they go, for the throughput. Then the system calls of one
// worker are counted, at the same load, which slows it down. At last frames are sent at a steady rate that leaves no
// queues, for the latency.
package demo
