package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/raw"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/session"
	"github.com/hugebus/hugebus/shm"
)

const rawLong = `Raw measures the machine itself between two cores, with nothing in between, in two
processes over one shared mapping:

  raw-rtt       the round trip of a cache line: one side writes a number, the other sees
                it and writes it back to another line
  raw-transfer  blocks of 64-byte lines, written whole by one side and read whole and
                checked by the other, round and round in a region; one counter a block

Each is tried in several ways (stores by MOV or XCHG, with and without PAUSE while waiting,
with and without prefetch for writing). The best way is the limit for what the bus can do.`

func newRaw() *cobra.Command {
	var c common
	var pages string
	cmd := &cobra.Command{
		Use:   "raw",
		Short: "Measure the machine's own limits: cache-line round trip and block transfer",
		Long:  rawLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			transfers, p, err := rawFlags(&c, pages, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			return runRaw(cmd, c, transfers, p)
		},
	}
	c.register(cmd, 100*time.Millisecond)
	cmd.Flags().StringSliceVar(&c.sizes, "size", []string{"64KiB", "1MiB", "16MiB"}, "regions of the transfer, in bytes")
	cmd.Flags().IntSliceVar(&c.batches, "batch", []int{16, 128, 1024}, "lines of a block of the transfer")
	cmd.Flags().StringVar(&pages, "pages", "auto", "pages of the mapping: auto, 1GiB, 2MiB, thp or 4KiB")
	return cmd
}

// rawFlags checks the flags; regions that hold less than two blocks are left out, if any is left.
func rawFlags(c *common, pages string, changed func(string) bool) ([]raw.Transfer, shm.Pages, error) {
	p, err := shm.ParsePages(pages)
	if err != nil {
		return nil, p, fmt.Errorf("--pages: %w", err)
	}
	if err := c.check(changed); err != nil {
		return nil, p, err
	}
	if err := checkBatches(c.batches); err != nil {
		return nil, p, err
	}
	regions, err := parseSizes(c.sizes, 128, 64<<30)
	if err != nil {
		return nil, p, err
	}
	var fit []raw.Transfer
	var misfit error
	for _, region := range regions {
		for _, block := range c.batches {
			for _, t := range raw.Ways(region, block) {
				if err := t.Check(region); err != nil {
					misfit = err
					continue
				}
				fit = append(fit, t)
			}
		}
	}
	if len(fit) == 0 {
		return nil, p, misfit
	}
	return fit, p, nil
}

func runRaw(cmd *cobra.Command, c common, transfers []raw.Transfer, pages shm.Pages) (err error) {
	run, err := newRun(cmd, c, raw.Trips, transfers, pages, raw.Bounds{Count: c.count, Duration: c.duration})
	if err != nil {
		return err
	}
	defer run.close(&err)
	if err := session.Run(cmd.Context(), run.team, c.rounds, run.limits.Cases(), run.progress); err != nil {
		return err
	}
	best := run.limits.RoundTrip()
	results := append(run.limits.RoundTrips(), run.limits.Transfers()...)
	for i := range results {
		results[i].RawRTT = best.P50
		results[i].Settings = &report.Settings{Cores: formatCores(run.cores), Pages: run.limits.Segment().Pages().String()}
	}
	return c.publish(cmd, run, results, fmt.Sprintf("Limits of this machine: %s a round trip (%s), %s lines/s one way (%s).",
		report.Duration(best.P50), best.Variant, report.Quantity(run.limits.Transfers()[0].FramesPerSecond), run.limits.Transfers()[0].Variant))
}
