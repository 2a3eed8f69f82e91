package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/shm"
)

const gcLong = `GC measures round trips of two processes whose garbage collector works: each holds a live heap
of small objects and allocates steadily beside the ping-pong. The same without any collection is measured
in the same rounds. "GCs" counts the collections of both processes in all rounds, "GC pause" is how long
one made the world stand still on average: what is left of a tail is the collector's use of the cores.`

func newGC() *cobra.Command {
	var (
		b           busFlags
		heap, alloc string
		percent     int
	)
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Measure round trips beside a garbage collector that works",
		Long:  gcLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := b.plan(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			held, err := shm.ParseSize(heap)
			if err != nil || held < 1<<20 || held > 64<<30 {
				return fmt.Errorf("--heap %q: use from 1MiB to 64GiB", heap)
			}
			rate, err := shm.ParseSize(alloc)
			if err != nil || rate < 0 || rate > 16<<30 {
				return fmt.Errorf("--alloc %q: use from 0 to 16GiB", alloc)
			}
			if percent < 1 {
				return fmt.Errorf("--gogc %d: use at least 1", percent)
			}
			prepare := func(ctx context.Context, bus *workload.Bus, p workload.Plan) ([]workload.Measured, error) {
				return workload.GCs(ctx, bus, p, held, rate, percent)
			}
			return b.measure(cmd, plan, prepare, nil)
		},
	}
	b.common.register(cmd, 2*time.Second)
	b.register(cmd, "4MiB")
	defaultRounds(cmd, 3)
	f := cmd.Flags()
	f.StringVar(&heap, "heap", "1GiB", "live heap of each process")
	f.StringVar(&alloc, "alloc", "256MiB", "bytes that each process allocates a second")
	f.IntVar(&percent, "gogc", 10, "GOGC of both processes: how much the heap grows before it is collected, in percent")
	return cmd
}
