package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/hugebus/hugebus/bench/internal/host"
	"github.com/hugebus/hugebus/bench/internal/raw"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/session"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/shm"
)

// A run is what every subcommand has while it measures.
type run struct {
	cores    []int
	limits   *raw.Limits
	team     *worker.Team
	progress *session.Progress
	warn     func(string)
	warnings []string
}

// warnPages warns if a topic's pages spoil the measurement.
func (r *run) warnPages(pages string, capacity int64) {
	if text := host.PageWarning(pages, capacity); text != "" {
		r.warn(text)
	}
}

func closeBus(b *workload.Bus, err *error) { *err = errors.Join(*err, b.Close()) }

// newRun makes the raw segment and starts the workers. It warns of what spoils the
// measurement.
func newRun(cmd *cobra.Command, c common, trips []raw.Trip, transfers []raw.Transfer, pages shm.Pages, b raw.Bounds) (*run, error) {
	cores, err := parseCores(c.cores)
	if err != nil {
		return nil, err
	}
	limits, err := raw.NewLimits(trips, transfers, pages, b)
	if err != nil {
		return nil, err
	}
	var places []int
	for i := range max(c.workers, 2) {
		places = append(places, cores[i%2])
	}
	team, err := startTeam(cmd.Context(), places, limits)
	if err != nil {
		return nil, errors.Join(err, limits.Close())
	}
	r := &run{cores: cores, limits: limits, team: team, progress: terminal(cmd.ErrOrStderr())}
	r.warn = func(text string) {
		r.warnings = append(r.warnings, text)
		fmt.Fprintln(cmd.ErrOrStderr(), "bench: warning:", text)
	}
	for _, problem := range team.Unpinned() {
		r.warn(problem.Error())
	}
	for _, text := range host.Warnings(cores) {
		r.warn(text)
	}
	return r, nil
}

// close ends the workers and releases the memory; its error goes to err if there is none yet.
func (r *run) close(err *error) {
	r.team.Close()
	*err = errors.Join(*err, r.limits.Close())
}

// terminal shows progress where somebody looks.
func terminal(w io.Writer) *session.Progress {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return session.NewProgress(w)
	}
	return nil
}

// raw4 are the ways of the raw round trip that are worth their time where it is only there to compare with.
func raw4() []raw.Trip { return raw.Trips[:4] }

// bounds are those of raw measurements beside others.
func bounds(d time.Duration) raw.Bounds { return raw.Bounds{Duration: d} }

// settle adds to results what is the same for all.
func (r *run) settle(results []report.Result) {
	limit, clock := r.limits.RoundTrip().P50, clockCost()
	for i := range results {
		results[i].RawRTT = limit
		if results[i].Settings == nil {
			results[i].Settings = &report.Settings{}
		}
		results[i].Settings.Cores, results[i].Settings.ClockNanoseconds = formatCores(r.cores), clock
	}
}

// session runs cases beside the raw limits and returns the results of both.
func (r *run) session(ctx context.Context, rounds int, measured []workload.Measured) ([]report.Result, error) {
	cases := r.limits.Cases()
	for _, m := range measured {
		cases = append(cases, m)
	}
	if err := session.Run(ctx, r.team, rounds, cases, r.progress); err != nil {
		return nil, err
	}
	var results []report.Result
	for _, m := range measured {
		results = append(results, m.Result())
	}
	results = append(results, r.limits.RoundTrip())
	if all := r.limits.Transfers(); len(all) > 0 {
		results = append(results, all[0])
	}
	r.settle(results)
	return results, nil
}

// defaultRounds gives a subcommand fewer rounds than others.
func defaultRounds(cmd *cobra.Command, n int) {
	f := cmd.Flags().Lookup("rounds")
	f.DefValue = strconv.Itoa(n)
	_ = f.Value.Set(f.DefValue) // a number
}

// hide takes flags from a subcommand's help that mean nothing to it.
func hide(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().Lookup(name).Hidden = true
	}
}
