package testutil

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// SeedEnv is the environment variable that makes Seed return a known value.
const SeedEnv = "HUGEBUS_SEED"

// Seed returns a seed for a test's random choices and prints it, with how to get it again: at random, or what
// HUGEBUS_SEED says.
func Seed(t testing.TB) int64 {
	t.Helper()
	if s := os.Getenv(SeedEnv); s != "" {
		seed, err := strconv.ParseInt(s, 0, 64)
		if err != nil {
			t.Fatalf("testutil: %s is %q: use a whole number", SeedEnv, s)
		}
		t.Logf("seed %d, from %s", seed, SeedEnv)
		return seed
	}
	seed := rand.Int64()
	t.Logf("seed %d: %s=%d repeats it", seed, SeedEnv, seed)
	return seed
}

// Eventually looks again and again until the condition holds, and fails the test when it does not for minutes. For what the
// kernel does and tells nobody about; where there is something to wait for, wait for that.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("testutil: not within %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}
