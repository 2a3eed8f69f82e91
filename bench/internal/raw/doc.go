// Package raw measures what the machine itself can do between two cores, with nothing
// in between: the round trip of a cache line, and the one-way transfer of blocks of
// cache lines. It uses the same instructions as package ring, in two processes over one
// shared segment, so that every figure of the bus has its limit beside it.
package raw
