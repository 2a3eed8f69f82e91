//go:build race

package ring

// raceEnabled is true under the race detector, which makes everything some ten times
// slower and allocate.
const raceEnabled = true
