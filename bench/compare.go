package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/foreign"
	"github.com/hugebus/hugebus/bench/internal/link"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/server"
	"github.com/hugebus/hugebus/bench/internal/session"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

const compareLong = `Compare runs the same two workloads over hugebus and over what people use instead on one
host: round trips of one payload, and a one-way stream as fast as it goes. Both sides are
processes of their own (but for the Go channel), and every payload is checked.

Each system is used as its own users would: package net for pipes and sockets, with the
length before each payload where there are no messages; nats.go with a server in a
process of its own; go-redis with pipelines, and a redis-server that saves nothing;
ZeroMQ and iceoryx in C. hugebus is there twice: spinning on two cores of its own, and
waiting the default way, which sleeps. Batch is how many payloads go into one call
(PublishBatch), write or pipeline.

Redis, ZeroMQ and iceoryx take part where they are installed; those that do not are named.`

// A comparison is what the flags of compare say.
type comparison struct {
	common
	systems []string
	rawTime time.Duration
}

// compared are all systems, in the order of the report.
var compared = []string{
	workload.System, workload.Channel, link.Pipe, link.Unix, link.SeqPacket, link.TCP,
	link.NATS, link.Redis, foreign.ZeroMQ, foreign.Iceoryx,
}

// notBuiltIn are systems that this program does not measure, and why.
var notBuiltIn = []string{
	"shmipc-go: not measured: its module could not be had from the Go module proxy where this was built.",
}

func newCompare() *cobra.Command {
	var c comparison
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Measure hugebus beside what else carries messages on one host",
		Long:  compareLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.measure(cmd)
		},
	}
	c.register(cmd, 100*time.Millisecond)
	defaultRounds(cmd, 3)
	f := cmd.Flags()
	f.StringSliceVar(&c.sizes, "size", []string{"48", "1KiB", "64KiB"}, "payload sizes, each from 8 bytes")
	f.IntSliceVar(&c.batches, "batch", []int{1, 16}, "payloads of one call, write or pipeline of the streams")
	f.StringSliceVar(&c.systems, "systems", compared, "which to compare")
	f.DurationVar(&c.rawTime, "raw-duration", 60*time.Millisecond, "how long each way of the raw measurements runs in each round")
	return cmd
}

// Topics have room for some payloads of the largest size, as the queues and buffers of the others have: a ring that fits
// the cache is faster for payloads of a KiB and more.
const (
	compareFrames = 16
	compareLeast  = 1 << 20
	compareMost   = 64 << 20
)

// compareCapacity is that of topics for payloads of up to most bytes.
func compareCapacity(most int64) int64 {
	return max(compareLeast, min(compareMost, int64(1)<<bits.Len64(uint64(most)*compareFrames-1)))
}

func (c *comparison) plan(changed func(string) bool) (workload.Plan, error) {
	var p workload.Plan
	if err := c.check(changed); err != nil {
		return p, err
	}
	if err := checkBatches(c.batches); err != nil {
		return p, err
	}
	for _, s := range c.systems {
		if !slices.Contains(compared, s) {
			return p, fmt.Errorf("--systems %q: use some of %s", s, strings.Join(compared, ", "))
		}
	}
	var err error
	p.Sizes, err = parseSizes(c.sizes, workload.MinPayload, int64(ring.MaxPayload(compareMost)))
	if err != nil {
		return p, err
	}
	p.Batches = c.batches
	p.Topic = client.TopicOptions{Capacity: compareCapacity(slices.Max(p.Sizes))}
	p.Shape = workload.Params{Count: c.count, Nanoseconds: int64(c.duration), Limit: 256, Pause: 1}
	return p, nil
}

func (c *comparison) measure(cmd *cobra.Command) (err error) {
	plan, err := c.plan(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	run, err := newRun(cmd, c.common, raw4(), transfers[:1], shm.PagesAuto, bounds(c.rawTime))
	if err != nil {
		return err
	}
	defer run.close(&err)
	dir, err := os.MkdirTemp("", "hugebus-compare-")
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rivals, err := openRivals(cmd.Context(), dir, c.systems)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rivals.close()) }()

	measured, bus, err := c.ownCases(cmd.Context(), plan)
	if bus != nil {
		defer closeBus(bus, &err)
	}
	if err != nil {
		return err
	}
	measured = append(measured, workload.Peers(dir, rivals.present, plan)...)
	if len(measured) == 0 {
		return errors.New("compare: none of --systems is there: " + strings.Join(rivals.absent, "; "))
	}
	cases := run.limits.Cases()
	for _, m := range measured {
		cases = append(cases, m)
	}
	if err := session.Run(cmd.Context(), run.team, c.rounds, cases, run.progress); err != nil {
		return err
	}
	return c.publish(cmd, run, c.results(run, measured), c.notes(run, rivals, plan)...)
}

// ownCases are those of hugebus, if it is compared: spinning, and waiting the default way.
func (c *comparison) ownCases(ctx context.Context, plan workload.Plan) ([]workload.Measured, *workload.Bus, error) {
	if !slices.Contains(c.systems, workload.System) {
		return nil, nil, nil
	}
	bus, err := workload.OpenBus(ctx)
	if err != nil {
		return nil, nil, err
	}
	all, err := workload.Compared(ctx, bus, plan)
	return all, bus, err
}

func (c *comparison) results(run *run, measured []workload.Measured) []report.Result {
	var results []report.Result
	for _, scenario := range []string{workload.ScenarioLatency, workload.ScenarioThroughput} {
		for _, m := range measured {
			if r := m.Result(); r.Scenario == scenario {
				results = append(results, r)
			}
		}
	}
	slices.SortStableFunc(results, func(a, b report.Result) int {
		if a.Scenario != b.Scenario {
			return 0
		}
		return a.PayloadBytes - b.PayloadBytes
	})
	results = append(results, run.limits.RoundTrip(), run.limits.Transfers()[0])
	run.settle(results)
	return results
}

func (c *comparison) notes(run *run, rivals *rivals, plan workload.Plan) []string {
	notes := []string{fmt.Sprintf("Cores %s. Medians of %d rounds. Rows of hugebus that spin are pinned to the two cores; all else runs where the kernel puts it.",
		formatCores(run.cores), c.rounds)}
	for _, size := range plan.Sizes {
		for _, r := range rivals.present {
			if most, why := link.MaxSize(r.System); most != 0 && size > int64(most) {
				notes = append(notes, fmt.Sprintf("%s: not measured at %s: %s.", r.System, shm.FormatSize(size), why))
			}
		}
	}
	return append(append(notes, rivals.absent...), notBuiltIn...)
}

// rivals are the systems beside hugebus, with their servers.
type rivals struct {
	present []workload.Rival
	absent  []string // those that are not there, and what to install
	servers []*server.Server
}

func (r *rivals) close() error {
	var all []error
	for _, s := range r.servers {
		all = append(all, s.Close())
	}
	return errors.Join(all...)
}

// openRivals starts servers and compiles helpers for those of systems that are there. dir is a
// folder of its own.
func openRivals(ctx context.Context, dir string, systems []string) (*rivals, error) {
	r := &rivals{}
	for _, name := range systems {
		if name == workload.System {
			continue
		}
		rival, missing, err := r.open(ctx, dir, name)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		if missing != nil {
			r.absent = append(r.absent, fmt.Sprintf("%s: not measured: %v.", name, missing))
			continue
		}
		r.present = append(r.present, rival)
	}
	return r, nil
}

// open makes one system ready. missing says what is not installed, or does not start.
func (r *rivals) open(ctx context.Context, dir, name string) (rival workload.Rival, missing, err error) {
	rival.System = name
	kind := ""
	switch name {
	case link.NATS:
		kind = server.NATS
	case link.Redis:
		kind = server.Redis
		_, missing = server.RedisProgram()
	case foreign.Iceoryx:
		kind = server.RouDi
		_, missing = server.RouDiProgram()
	}
	if missing != nil {
		return rival, missing, nil
	}
	if name == foreign.ZeroMQ || name == foreign.Iceoryx {
		if rival.Program, missing = foreign.Build(ctx, name, dir); missing != nil {
			return rival, missing, nil
		}
	}
	if kind == "" {
		return rival, nil, nil
	}
	own, err := os.MkdirTemp(dir, kind)
	if err != nil {
		return rival, nil, fmt.Errorf("compare: %w", err)
	}
	s, err := server.Start(ctx, kind, own)
	if err != nil {
		return rival, err, nil
	}
	r.servers = append(r.servers, s)
	rival.Server = s.Address
	return rival, nil, nil
}
