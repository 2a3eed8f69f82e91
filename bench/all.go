package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const allLong = `All runs the scenarios one after another, each with its defaults, and puts one report together of what
they found out. --smoke does as little as possible of each: enough to see that everything runs and
that all data arrives as it was sent, and no measurement at all.`

// A scenario is a subcommand that "all" runs.
type scenario struct {
	name  string
	make  func() *cobra.Command
	smoke string // its flags for --smoke
}

// scenarios are in the order of the report.
var scenarios = []scenario{
	{"compare", newCompare, "--count 200 --size 48 --batch 1,4"},
	{"latency", newLatency, "--count 2000"},
	{"throughput", newThroughput, "--count 100000 --batch 1,16 --capacity 1MiB"},
	{"rate", newRate, "--rate 1k,10k --duration 50ms"},
	{"wakeup", newWakeup, "--count 100 --idle 200ms --missed 1000 --duration 50ms"},
	{"fanout", newFanout, "--count 5000 --capacity 1MiB"},
	{"fanin", newFanin, "--count 5000 --capacity 1MiB"},
	{"group", newGroup, "--count 5000 --capacity 1MiB"},
	{"pages", newPages, "--count 20000 --rings 1MiB,16MiB"},
	{"gc", newGC, "--count 2000 --heap 16MiB"},
	{"start", newStart, "--count 20000 --capacity 1MiB"},
	{"ingress", newIngress, "--connections 20,50 --rate 200,20 --duration 200ms --capacity 4MiB"},
	{"push", newPush, "--clients 20,50 --rate max,50 --duration 200ms --capacity 4MiB"},
	{"raw", newRaw, "--duration 5ms"},
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

func newAll() *cobra.Command {
	var (
		o     output
		smoke bool
		cores string
		only  []string
	)
	cmd := &cobra.Command{
		Use:   "all",
		Short: "Run all scenarios, and put one report together",
		Long:  allLong,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if _, err := parseCores(cores); err != nil {
				return err
			}
			for _, name := range only {
				if !slices.Contains(scenarioNames(), name) {
					return fmt.Errorf("--only %q: use some of %s", name, strings.Join(scenarioNames(), ", "))
				}
			}
			return runAll(cmd, &o, smoke, cores, only)
		},
	}
	o.register(cmd.Flags())
	f := cmd.Flags()
	f.BoolVar(&smoke, "smoke", false, "do as little as possible of each")
	f.StringVar(&cores, "cores", "auto", "two cores to pin to, as A,B; auto: the first two that are allowed; none: do not pin")
	f.StringSliceVar(&only, "only", scenarioNames(), "which scenarios to run")
	return cmd
}

func runAll(cmd *cobra.Command, o *output, smoke bool, cores string, only []string) error {
	var all gathered
	ctx := gather(cmd.Context(), &all)
	for _, s := range scenarios {
		if !slices.Contains(only, s.name) {
			continue
		}
		args := []string{"--cores", cores}
		if smoke {
			args = append(append(args, "--rounds", "1"), strings.Fields(s.smoke)...)
			if s.name != "raw" {
				args = append(args, "--raw-duration", "5ms")
			}
		}
		sub := s.make()
		sub.SilenceUsage, sub.SilenceErrors = true, true
		sub.SetArgs(args)
		sub.SetOut(cmd.OutOrStdout())
		sub.SetErr(cmd.ErrOrStderr())
		fmt.Fprintln(cmd.ErrOrStderr(), "bench:", s.name)
		if err := sub.ExecuteContext(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if len(all.sections) == 0 {
		return errors.New("--only: nothing to run")
	}
	return o.write(cmd, document("hugebus bench", all.warnings, all.sections...))
}
