package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/crowd"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/shm"
)

const ingressLong = `Ingress measures TCP into the bus: one process has the connections and sends, one is an ingress, and one a
worker that checks every frame, its sequence and its checksum. Each connection sends at its rate whatever becomes of what
it sent before, and times are from when a frame was to be sent until the worker has it: there is no coordinated
omission. What is due on one connection goes with one write.

"memory/conn" is the ingress' own memory for each connection, "calls/frame" how many reads it made for each frame.

Then one connection streams as fast as it goes, to an ingress with its worker, and, as the limit, to a loop that reads the same stream
into a large buffer and only finds where frames end; "of raw" is the ratio. Three processes share the cores in the first, two in
the second.`

const rawDuration = 60 * time.Millisecond

func newIngress() *cobra.Command {
	var c crowdFlags
	cmd := &cobra.Command{
		Use:   "ingress",
		Short: "Measure TCP into the bus: thousands of connections, and one that streams",
		Long:  ingressLong,
		Example: `  go run ./bench ingress
  go run ./bench ingress --connections 1000,10000 --rate 1k,20 --duration 5s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return measureIngress(cmd, &c) },
	}
	c.common.register(cmd, 2*time.Second)
	defaultRounds(cmd, 3)
	c.register(cmd, "connections", "64", []int{1000, 10000}, []string{"1k", "20"},
		"connections of each load", "frames per second of each connection, one rate for each load")
	return cmd
}

func measureIngress(cmd *cobra.Command, c *crowdFlags) (err error) {
	shapes, topic, err := c.loads(cmd.Flags().Changed, false)
	if err != nil {
		return err
	}
	fit, notes, err := fitting(shapes)
	if err != nil {
		return err
	}
	c.workers = 3
	run, err := newRun(cmd, c.common, raw4(), nil, shm.PagesAuto, bounds(c.rawTime))
	if err != nil {
		return err
	}
	defer run.close(&err)
	dir, err := os.MkdirTemp("", "hugebus-ingress-")
	if err != nil {
		return fmt.Errorf("ingress: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bus, err := workload.OpenBus(cmd.Context())
	if err != nil {
		return err
	}
	defer closeBus(bus, &err)
	in := &crowd.Ingress{Dir: dir, Bus: bus, Topic: topic, Wait: c.wait}
	var measured []workload.Measured
	for _, s := range fit {
		measured = append(measured, in.Load(s))
	}
	for i, s := range fit {
		if i == 0 || s.Size != fit[i-1].Size {
			measured = append(measured, in.Streams(s)...)
		}
	}
	results, err := run.session(cmd.Context(), c.rounds, measured)
	if err != nil {
		return err
	}
	notes = append(notes, fmt.Sprintf("Medians of %d rounds of %v. Every frame was checked, and none lost. The kernel places the processes.", c.rounds, c.duration))
	for _, m := range measured {
		if m, ok := m.(interface{ Note() string }); ok {
			notes = append(notes, m.Note())
		}
	}
	return c.publish(cmd, run, results, append(notes, behindNotes(results)...)...)
}

// behindNotes say which loads were more than a system carried.
func behindNotes(results []report.Result) (notes []string) {
	for _, r := range results {
		if r.Behind {
			notes = append(notes, fmt.Sprintf("%s fell behind at %s/s: it carried %s/s.", r.System, report.Quantity(r.TargetPerSecond), report.Quantity(r.FramesPerSecond)))
		}
	}
	return notes
}
