package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/raw"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/session"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/shm"
)

const latencyLong = `Latency measures round trips between two processes: one publishes on a topic, the
other answers on a second topic with the same bytes, and the first takes the time of
each trip. Nothing else is under way, so it is what one message costs, there and back.

The round trip of a bare cache line between the same cores is measured in the same
rounds; "p50/raw" is how many of those a round trip takes. Both include one reading of the
clock.`

func newLatency() *cobra.Command {
	var b busFlags
	cmd := &cobra.Command{
		Use:   "latency",
		Short: "Measure round trips between two processes",
		Long:  latencyLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := b.plan(cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return b.measure(cmd, plan, workload.Latency, nil)
		},
	}
	b.common.register(cmd, 500*time.Millisecond)
	b.register(cmd, "4MiB")
	return cmd
}

type makeCases func(context.Context, *workload.Bus, workload.Plan) ([]workload.Measured, error)

// measure runs the plan's cases interleaved with the raw limits, and reports both.
func (b *busFlags) measure(cmd *cobra.Command, plan workload.Plan, prepare makeCases, transfers []raw.Transfer) (err error) {
	// The flag was checked, and the raw segment need not be strict about it.
	run, err := newRun(cmd, b.common, raw.Trips, transfers, shm.PagesAuto, raw.Bounds{Duration: b.rawTime})
	if err != nil {
		return err
	}
	defer run.close(&err)
	bus, err := workload.OpenBus(cmd.Context())
	if err != nil {
		return err
	}
	defer closeBus(bus, &err)
	measured, err := prepare(cmd.Context(), bus, plan)
	if err != nil {
		return err
	}
	run.warnPages(bus.Pages, plan.Topic.Capacity)
	cases := run.limits.Cases()
	for _, m := range measured {
		cases = append(cases, m)
	}
	if err := session.Run(cmd.Context(), run.team, b.rounds, cases, run.progress); err != nil {
		return err
	}
	var results []report.Result
	for _, m := range measured {
		results = append(results, m.Result())
	}
	results = append(results, run.limits.RoundTrip())
	if len(transfers) > 0 {
		results = append(results, run.limits.Transfers()[0])
	}
	b.settle(results, run, plan.Topic.Capacity, bus.Pages)
	return b.publish(cmd, run, results, b.note(results))
}

// settle adds to results what is known only now.
func (b *busFlags) settle(results []report.Result, run *run, capacity int64, pages string) {
	limit := run.limits.RoundTrip().P50
	clock := clockCost()
	for i := range results {
		r := &results[i]
		r.RawRTT = limit
		r.Settings = &report.Settings{Cores: formatCores(run.cores), ClockNanoseconds: clock}
		if r.System == workload.System {
			r.Settings.Mode, r.Settings.Claim, r.Settings.Wait = b.mode, b.claim, b.wait
			r.Settings.Capacity, r.Settings.Pages = capacity, pages
		}
	}
}

// note says under what conditions the results came about.
func (b *busFlags) note(results []report.Result) string {
	s := results[0].Settings
	return fmt.Sprintf("Cores %s, %s topics of %s on %s pages, waiting by %s. Medians of %d rounds. A reading of the clock costs %.0f ns.",
		s.Cores, s.Mode, b.capacity, s.Pages, s.Wait, results[0].Rounds, s.ClockNanoseconds)
}

// clockCost is what one reading of the clock costs, in ns.
func clockCost() float64 {
	const reads = 100_000
	start := time.Now()
	for range reads {
		_ = time.Since(start)
	}
	return float64(time.Since(start)) / reads
}
