//go:build !race

package client_test

// raceEnabled is true in builds with the race detector.
const raceEnabled = false
