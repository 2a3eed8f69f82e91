// Bench measures how fast hugebus is on this machine, and says beside every figure
// what the machine itself could do: the bare cache-line round trip and block transfer
// between the same two cores, in the same run.
//
//	go run ./bench compare --html report.html
//	go run ./bench latency
//	go run ./bench throughput --size 48,1KiB --batch 1,16
//	go run ./bench raw --json
//
// See docs/performance.md for the method.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	switch {
	case err == nil:
		return
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "bench: interrupted")
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	stop()
	os.Exit(1)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "bench",
		Short: "Measure hugebus on this machine, beside what the machine itself can do",
		Long: `Bench measures hugebus between two processes on two cores of this machine, and in
the same run what the machine itself can do between the same two cores: the round trip
of a bare cache line, and the transfer of blocks of cache lines. Ratios of the two
travel from machine to machine; absolute figures do not.

Every figure is the median of several rounds, in which all cases take turns; "spread"
is how far the rounds lie apart.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(commands()...)
	return root
}
