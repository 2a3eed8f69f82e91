//go:build invariants

package invariants

// Enabled reports whether this build checks.
const Enabled = true

// Check panics with msg if cond does not hold. Only for what this process alone decides: a peer's memory may say
// anything, and that is an error and never a panic.
func Check(cond bool, msg string) {
	if !cond {
		panic("invariant violated: " + msg)
	}
}

// Poison overwrites b, which nobody may use any more and which this process may write.
func Poison(b []byte) {
	for i := range b {
		b[i] = PoisonByte
	}
}
