// Package keepertest makes a test binary that can be a keeper process, for tests of what outlives a broker.
package keepertest

import (
	"os"
	"testing"

	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/internal/testutil"
)

const (
	// role is the hidden subcommand of the test binary: its first argument is the leash, the rest are the keeper's.
	role = "keeper-of-a-test"
	// leashEnv is where keepers find the leash: see testutil.HoldLeash.
	leashEnv = "HUGEBUS_TEST_KEEPER_LEASH"
)

// Main is testutil.Main for a binary whose tests start keepers.
func Main(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == role {
		testutil.FollowLeash(os.Args[2])
		os.Exit(keeper.Main(os.Args[3:]))
	}
	testutil.HoldLeash(leashEnv)
	testutil.Main(m)
}

// Exec is how this test binary becomes a keeper process.
func Exec() []string {
	self, err := os.Executable()
	if err != nil {
		panic(err) // no test goes on without
	}
	return []string{self, role, os.Getenv(leashEnv)}
}
