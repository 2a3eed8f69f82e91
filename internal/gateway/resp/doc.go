// Package resp lets any Redis client talk to the bus: PUBLISH publishes frames, SUBSCRIBE and PSUBSCRIBE read them, on one
// port, in RESP2 and RESP3.
//
// A channel is a topic, or all channels share one topic (Config.Topic), whose frames then begin with the channel's name: a
// length of two bytes, most significant first, and so many bytes.
//
// PUBLISHes that come together are published with one claim, cut in place. What subscribers are sent is encoded once for all of
// them, into shared blocks (package outbox). A subscriber that does not read is closed, as Redis does it, once too
// much waits for it.
package resp
