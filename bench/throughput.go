package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/raw"
	"github.com/hugebus/hugebus/bench/internal/workload"
)

const throughputLong = `Throughput measures a one-way stream: one process publishes as fast as there is room, the
other reads every frame, checks its sequence number, and checks every byte of one frame
in 1,024. The rate is that of the reader, from the first frame behind a warm-up of one
lap to the last.

The bare transfer of cache lines between the same cores is measured in the same
rounds, in a few ways; the best is reported.`

// transfers are the ways that the limit of a stream is looked for in; "bench raw" tries
// more.
var transfers = []raw.Transfer{
	{Region: 1 << 20, Block: 128, Prefetch: 24, Pause: 64},
	{Region: 16 << 20, Block: 1024, Prefetch: 24, Pause: 1},
	{Region: 16 << 20, Block: 1024, Prefetch: 24, Pause: 64},
	{Region: 64 << 20, Block: 1024, Prefetch: 24, Pause: 64},
}

func newThroughput() *cobra.Command {
	var b busFlags
	cmd := &cobra.Command{
		Use:   "throughput",
		Short: "Measure a one-way stream between two processes",
		Long:  throughputLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := b.plan(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return b.measure(cmd, plan, workload.Throughput, transfers)
		},
	}
	b.common.register(cmd, time.Second)
	b.register(cmd, "64MiB")
	return cmd
}
