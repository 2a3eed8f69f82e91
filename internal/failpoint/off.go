//go:build !failpoint

package failpoint

// Enabled reports whether this build has failpoints.
const Enabled = false

// Hit does nothing in this build.
func Hit(name string) {}

// Hits is always nought in this build.
func Hits(name string) int { return 0 }
