package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/link"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

const rateLong = `Rate sends at fixed rates and takes the time of each payload, one way, from when it was to be
sent until the other process has it. A system that holds the sender up makes all payloads behind
late, and their times say so: there is no coordinated omission. The sender spins until
each is due, and writes what is due at once; a rate above what a system carries is
reported as behind, and its times then only say how far behind it fell.

Both processes read the host's monotonic clock, which agrees to within some tens of ns.`

type rateFlags struct {
	common
	systems, rates []string
	wait           string
	rawTime        time.Duration
}

// ratedSystems are those that rate measures.
var ratedSystems = []string{workload.System, link.Unix, link.TCP, link.NATS, link.Redis}

func newRate() *cobra.Command {
	var c rateFlags
	cmd := &cobra.Command{
		Use:   "rate",
		Short: "Measure latency at fixed rates, from when each payload was to be sent",
		Long:  rateLong,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.measure(cmd) },
	}
	c.common.register(cmd, 300*time.Millisecond)
	defaultRounds(cmd, 3)
	f := cmd.Flags()
	hide(cmd, "count")
	f.StringSliceVar(&c.sizes, "size", []string{"48"}, "payload sizes, each from 16 bytes")
	f.StringSliceVar(&c.rates, "rate", []string{"10k", "100k", "1M", "5M"}, "payloads per second")
	f.StringSliceVar(&c.systems, "systems", ratedSystems, "which to measure")
	f.StringVar(&c.wait, "wait", "spin", "how hugebus waits: spin, adaptive, yield, sleep; spinning processes are pinned")
	f.DurationVar(&c.rawTime, "raw-duration", 60*time.Millisecond, "how long each way of the raw measurements runs in each round")
	return cmd
}

// parseRate reads a number with k, M or G.
func parseRate(text string) (float64, error) {
	digits, factor := text, 1.0
	for suffix, f := range map[string]float64{"k": 1e3, "M": 1e6, "G": 1e9} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			digits, factor = rest, f
		}
	}
	n, err := strconv.ParseFloat(digits, 64)
	if n *= factor; err != nil || !(n >= 1 && n <= 1e9) {
		return 0, fmt.Errorf("--rate %q: use a number from 1 to 1G, such as 10k or 1M", text)
	}
	return n, nil
}

func (c *rateFlags) parse(changed func(string) bool) (sizes []int64, rates []float64, err error) {
	if err := c.check(changed); err != nil {
		return nil, nil, err
	}
	if c.duration == 0 {
		return nil, nil, errors.New("--duration 0: an open loop is bounded by time")
	}
	for _, s := range c.systems {
		if !slices.Contains(ratedSystems, s) {
			return nil, nil, fmt.Errorf("--systems %q: use some of %s", s, strings.Join(ratedSystems, ", "))
		}
	}
	if _, err := client.ParseWait(c.wait); err != nil {
		return nil, nil, fmt.Errorf("--wait: %w", err)
	}
	for _, text := range c.rates {
		n, err := parseRate(text)
		if err != nil {
			return nil, nil, err
		}
		rates = append(rates, n)
	}
	sizes, err = parseSizes(c.sizes, workload.MinRatePayload, int64(ring.MaxPayload(compareMost)))
	return sizes, rates, err
}

func (c *rateFlags) measure(cmd *cobra.Command) (err error) {
	sizes, rates, err := c.parse(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	run, err := newRun(cmd, c.common, raw4(), nil, shm.PagesAuto, bounds(c.rawTime))
	if err != nil {
		return err
	}
	defer run.close(&err)
	dir, err := os.MkdirTemp("", "hugebus-rate-")
	if err != nil {
		return fmt.Errorf("rate: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rivals, err := openRivals(cmd.Context(), dir, c.systems)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rivals.close()) }()
	var bus *workload.Bus
	if slices.Contains(c.systems, workload.System) {
		if bus, err = workload.OpenBus(cmd.Context()); err != nil {
			return err
		}
		defer closeBus(bus, &err)
		for _, name := range []string{link.TopicThere, link.TopicBack} {
			if err := bus.Create(cmd.Context(), name, client.TopicOptions{Capacity: compareMost}); err != nil {
				return err
			}
		}
	}
	shape := workload.Params{Nanoseconds: int64(c.duration), Wait: c.wait, Limit: 256}
	measured := workload.Rates(dir, bus, rivals.present, sizes, rates, shape)
	results, err := run.session(cmd.Context(), c.rounds, measured)
	if err != nil {
		return err
	}
	return c.publish(cmd, run, results, append(c.notes(run, results), rivals.absent...)...)
}

func (c *rateFlags) notes(run *run, results []report.Result) []string {
	notes := []string{fmt.Sprintf("Cores %s. Medians of %d rounds of %v. Times are one way, from when a payload was to be sent.", formatCores(run.cores), c.rounds, c.duration)}
	for _, r := range results {
		if r.Behind {
			notes = append(notes, fmt.Sprintf("%s fell behind at %s/s: it carried %s/s.", r.System, report.Quantity(r.TargetPerSecond), report.Quantity(r.FramesPerSecond)))
		}
	}
	return notes
}
