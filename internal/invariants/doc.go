// Package invariants holds checks that are too dear, or too strict, for production.
//
// With the build tag "invariants" a check that fails panics, and memory that its user has given back is filled with a
// pattern, so that a use after the claim or the callback shows. Without the tag every function is empty and the compiler
// removes the call; guard what computes an argument with "if invariants.Enabled".
package invariants

// PoisonByte is what Poison fills memory with.
const PoisonByte = 0xDB
