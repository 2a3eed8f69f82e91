// Package keepertest makes a test binary that can be a keeper process, for tests of what outlives a broker.
package keepertest

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/internal/testutil"
)

const (
	// role is the hidden subcommand of the test binary: its first argument is the leash, the rest are the keeper's.
	role = "keeper-of-a-test"
	// leashEnv names an abstract socket on which the outermost test process listens. A keeper is nobody's child and
	// ends only when told; those of a test that crashes end with this socket.
	leashEnv = "HUGEBUS_TEST_KEEPER_LEASH"
)

// Main is testutil.Main for a binary whose tests start keepers.
func Main(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == role {
		if err := dieWith(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(keeper.Main(os.Args[3:]))
	}
	if os.Getenv(leashEnv) == "" {
		name := fmt.Sprintf("@hugebus-keepertest-%d", os.Getpid())
		leash, err := net.Listen("unix", name) // nobody accepts
		if err == nil {
			// It is never run: it keeps the socket from being collected, and closed.
			defer leash.Close()
			err = os.Setenv(leashEnv, name)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	testutil.Main(m)
}

func dieWith(leash string) error {
	c, err := net.Dial("unix", leash)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, c)
		os.Exit(4)
	}()
	return nil
}

// Exec is how this test binary becomes a keeper process.
func Exec() []string {
	self, err := os.Executable()
	if err != nil {
		panic(err) // no test goes on without
	}
	return []string{self, role, os.Getenv(leashEnv)}
}
