package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/shm"
)

const pagesLong = `Pages measures a one-way stream over rings of several sizes, each on 4 KiB pages, on
transparent huge pages and on huge pages of 2 MiB: how fast, and how many page faults and
loads that missed the data TLB there were in both processes, behind a warm-up of one lap. What the machine
does not have is named, with the remedy; dTLB misses are left out where it does not count them.`

type pagesFlags struct {
	busFlags
	capacities, kinds []string
}

func newPages() *cobra.Command {
	var c pagesFlags
	cmd := &cobra.Command{
		Use:   "pages",
		Short: "Measure a stream over rings on 4 KiB, transparent huge and 2 MiB pages",
		Long:  pagesLong,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.run(cmd) },
	}
	c.common.register(cmd, 300*time.Millisecond)
	c.busFlags.register(cmd, "1MiB")
	defaultRounds(cmd, 3)
	f := cmd.Flags()
	f.StringSliceVar(&c.capacities, "rings", []string{"1MiB", "16MiB", "128MiB", "512MiB"}, "capacities of the topics, powers of two")
	f.StringSliceVar(&c.kinds, "kinds", []string{"4KiB", "thp", "2MiB"}, "kinds of pages")
	hide(cmd, "capacity", "pages")
	return cmd
}

func (c *pagesFlags) run(cmd *cobra.Command) (err error) {
	var capacities []int64
	for _, text := range c.capacities {
		c.capacity = text // so that sizes are checked against the smallest, too
		n, err := c.topicCapacity()
		if err != nil {
			return fmt.Errorf("--rings: %w", err)
		}
		capacities = append(capacities, n)
	}
	for _, kind := range c.kinds {
		if p, err := shm.ParsePages(kind); err != nil || p == shm.PagesAuto {
			return fmt.Errorf("--kinds %q: use 4KiB, thp, 2MiB or 1GiB", kind)
		}
	}
	if len(capacities) == 0 || len(c.kinds) == 0 {
		return errors.New("--rings and --kinds: give at least one each")
	}
	smallest := capacities[report.Best(capacities, func(n int64) int64 { return n })]
	c.capacity = shm.FormatSize(smallest)
	plan, err := c.plan(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	run, err := newRun(cmd, c.common, raw4(), transfers[:1], shm.PagesAuto, bounds(c.rawTime))
	if err != nil {
		return err
	}
	defer run.close(&err)
	bus, err := workload.OpenBus(cmd.Context())
	if err != nil {
		return err
	}
	defer closeBus(bus, &err)
	cases := workload.Pages(bus, plan, capacities, c.kinds)
	var measured []workload.Measured
	for _, p := range cases {
		measured = append(measured, p)
	}
	results, err := run.session(cmd.Context(), c.rounds, measured)
	if err != nil {
		return err
	}
	return c.publish(cmd, run, present(results), c.notes(run, cases, results)...)
}

// present leaves out what could not be measured here.
func present(results []report.Result) []report.Result {
	var kept []report.Result
	for _, r := range results {
		if r.Rounds > 0 {
			kept = append(kept, r)
		}
	}
	return kept
}

func (c *pagesFlags) notes(run *run, cases []workload.Paged, results []report.Result) []string {
	notes := []string{fmt.Sprintf("Cores %s, waiting by %s. Medians of %d rounds. Page faults and dTLB misses are those of both processes in one round, behind the warm-up.",
		formatCores(run.cores), c.wait, c.rounds)}
	counted := false
	for _, r := range results {
		counted = counted || r.TLBMisses != nil
	}
	if !counted {
		notes = append(notes, "dTLB misses: not counted here: this machine (or its kernel's perf_event_paranoid) has no such counter for us.")
	}
	for _, p := range cases {
		if err := p.Missing(); err != nil {
			notes = append(notes, fmt.Sprintf("%s: not measured: %v", p.Result().Variant, err))
		}
	}
	return notes
}
