package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/link"
	"github.com/hugebus/hugebus/bench/internal/raw"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

const wakeupLong = `Wakeup measures what sleeping costs:

  latency         round trips of two processes that sleep between frames, beside two
                  threads that wake each other by futex, and a Unix socket
  cpu             processor time of both sides at --rate frames/s to a sleeping reader,
                  beside a Unix socket
  idle            processor time and threads of a process that waits in 1, 100 and 1,000
                  subscriptions for frames that do not come, over --idle
  missed-wakeups  how often a bounded sleep ran out with something to read, when two
                  processes sleep --missed times, interrupted at random moments`

type wakeupFlags struct {
	common
	rate          string
	idle          time.Duration
	missed        int64
	seed          uint64
	subscriptions []int
	rawTime       time.Duration
}

func newWakeup() *cobra.Command {
	var c wakeupFlags
	cmd := &cobra.Command{
		Use:   "wakeup",
		Short: "Measure what sleeping and waking costs, and count missed wake-ups",
		Long:  wakeupLong,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.measure(cmd) },
	}
	c.common.register(cmd, 500*time.Millisecond)
	defaultRounds(cmd, 3)
	f := cmd.Flags()
	f.StringSliceVar(&c.sizes, "size", []string{"48"}, "payload sizes of the round trips, each from 8 bytes")
	f.StringVar(&c.rate, "rate", "1k", "frames per second of the slow stream")
	f.DurationVar(&c.idle, "idle", 10*time.Second, "how long waiting for nothing is measured, in the first round; 0: not at all")
	f.IntSliceVar(&c.subscriptions, "subscriptions", []int{1, 100, 1000}, "numbers of subscriptions that wait in one process")
	f.Int64Var(&c.missed, "missed", 100_000, "how often two processes sleep at random times, in the first round, up to ten million; 0: not at all")
	f.Uint64Var(&c.seed, "seed", 1, "seed of the random times")
	f.DurationVar(&c.rawTime, "raw-duration", 60*time.Millisecond, "how long each way of the raw measurements runs in each round")
	return cmd
}

// mostMissed bounds --missed: an hour or so.
const mostMissed = 100_000_000

func (c *wakeupFlags) parse(changed func(string) bool) (sizes []int64, rate float64, err error) {
	if err := c.check(changed); err != nil {
		return nil, 0, err
	}
	if rate, err = parseRate(c.rate); err != nil {
		return nil, 0, err
	}
	for _, n := range c.subscriptions {
		if n < 1 || n > 10_000 {
			return nil, 0, fmt.Errorf("--subscriptions %d: use from 1 to 10000", n)
		}
	}
	if c.missed < 0 || c.missed > mostMissed {
		return nil, 0, fmt.Errorf("--missed %d: use from 0 to %d", c.missed, mostMissed)
	}
	if c.idle < 0 || c.idle > 0 && c.idle < 40*time.Millisecond {
		return nil, 0, fmt.Errorf("--idle %v: use 0, or at least 40ms", c.idle)
	}
	sizes, err = parseSizes(c.sizes, workload.MinPayload, int64(ring.MaxPayload(wakeupCapacity)))
	return sizes, rate, err
}

const wakeupCapacity = 4 << 20

func (c *wakeupFlags) measure(cmd *cobra.Command) (err error) {
	sizes, rate, err := c.parse(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	run, err := newRun(cmd, c.common, raw4(), nil, shm.PagesAuto, bounds(c.rawTime))
	if err != nil {
		return err
	}
	defer run.close(&err)
	dir, err := os.MkdirTemp("", "hugebus-wakeup-")
	if err != nil {
		return fmt.Errorf("wakeup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bus, err := workload.OpenWatchedBus(ctx)
	if err != nil {
		return err
	}
	defer closeBus(bus, &err)
	for _, name := range []string{link.TopicThere, link.TopicBack} {
		if err := bus.Create(ctx, name, client.TopicOptions{Capacity: wakeupCapacity}); err != nil {
			return err
		}
	}
	plan := workload.Plan{Sizes: sizes, Batches: []int{1}, Shape: workload.Params{Count: c.count, Nanoseconds: int64(c.duration), Limit: 256}}
	measured := []workload.Measured{&raw.Futex{Bounds: raw.Bounds{Count: c.count, Duration: c.duration}}}
	measured = append(measured, workload.Sleepers(dir, bus, plan)...)
	// A slow stream takes time to say something.
	measured = append(measured, workload.CPUs(dir, bus, sizes[0], rate, "sleep", max(c.duration, 2*time.Duration(float64(time.Second)/rate)))...)
	if c.missed > 0 {
		measured = append(measured, workload.Missed(bus, c.missed, sizes[0], c.seed))
	}
	if c.idle > 0 {
		measured = append(measured, workload.Idles(bus, c.subscriptions, "adaptive", c.idle)...)
	}
	results, err := run.session(ctx, c.rounds, measured)
	if err != nil {
		return err
	}
	return c.publish(cmd, run, results, append([]string{fmt.Sprintf("Cores %s. Medians of %d rounds; idle and missed-wakeups ran once. CPU is a share of one core, of both sides of the slow stream together.",
		formatCores(run.cores), c.rounds)}, wakeupRatios(results)...)...)
}

// wakeupRatios say how each way to sleep and wake compares with the futex with nothing in between.
func wakeupRatios(results []report.Result) []string {
	var notes []string
	bare := int64(0)
	for _, r := range results {
		switch {
		case r.Scenario == raw.ScenarioFutex:
			bare = r.P50
		case r.Scenario == workload.ScenarioLatency && bare > 0:
			notes = append(notes, fmt.Sprintf("%s (%s), %s: p50 is %.2f times that of the bare futex.",
				r.System, r.Variant, shm.FormatSize(int64(r.PayloadBytes)), float64(r.P50)/float64(bare)))
		}
	}
	return notes
}
