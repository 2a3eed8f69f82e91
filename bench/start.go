package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/workload"
)

const startLong = `Start measures what comes first: how fast the first 100,000 frames after attaching to a new
topic are, beside later ones (the median of nine more such stretches), and how long attaching takes, once connected
to the broker. Nothing is warmed up: a page that is touched for the first time shows.`

func newStart() *cobra.Command {
	var b busFlags
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Measure the first frames after attaching, and attaching itself",
		Long:  startLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := b.plan(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			prepare := func(_ context.Context, bus *workload.Bus, p workload.Plan) ([]workload.Measured, error) {
				return workload.Starts(bus, p), nil
			}
			return b.measure(cmd, plan, prepare, nil)
		},
	}
	b.common.register(cmd, time.Second)
	b.register(cmd, "64MiB")
	hide(cmd, "duration", "read")
	return cmd
}
