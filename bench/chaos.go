package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/siege"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/keeper"
)

const chaosLong = `Chaos runs publishers, subscribers, groups, joiners, sleepers, an ingress and a broker, each in
its own process; kills, stops and ends them at failpoints and at random times; starts others in
their place; and checks all the while that no frame whose publishing returned is lost, that there
is one order for all, that gaps are exact, that groups get each frame, that nobody waits for what
is there, and that nothing is left over in the end.

The first violation ends it with status 1 and a dump: what was done and when, the memory of the
topics, what each reader said last, and the logs. --replay DUMP does the same again.

Failpoints are behind a build tag. Unless this program has them, it builds one that has, with the
go tool; without that it kills at random times only, and says so.`

// chaosFlags are the flags of chaos.
type chaosFlags struct {
	duration, watchdog time.Duration
	seed               uint64
	replay, dump       string
	json               bool
}

func newChaos() *cobra.Command {
	var c chaosFlags
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Kill processes of every kind, and check that nothing is lost",
		Long:  chaosLong,
		Example: `  go run ./bench chaos --duration 10m --seed 1
  go run ./bench chaos --replay /tmp/chaos-seed1-123`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runChaos(cmd, c) },
	}
	f := cmd.Flags()
	f.DurationVar(&c.duration, "duration", time.Minute, "how long processes are killed")
	f.Uint64Var(&c.seed, "seed", 0, "seed of what is done; 0: another one each time")
	f.StringVar(&c.replay, "replay", "", "do again what the dump in this directory says")
	f.StringVar(&c.dump, "dump", os.TempDir(), "directory for the dump of a violation")
	f.DurationVar(&c.watchdog, "watchdog", 20*time.Second, "how long anybody may wait for what is there")
	f.BoolVar(&c.json, "json", false, "write the result as a JSON object")
	return cmd
}

// options are what the flags say.
func (c chaosFlags) options(changed func(string) bool) (o siege.Options, err error) {
	if c.duration <= 0 || c.watchdog <= 0 {
		return o, fmt.Errorf("--duration %v, --watchdog %v: use more than 0", c.duration, c.watchdog)
	}
	o = siege.Options{Seed: c.seed, Duration: c.duration}
	if c.replay != "" {
		if changed("seed") || changed("duration") {
			return o, errors.New("--replay: the dump says seed and duration; leave --seed and --duration out")
		}
		if o, err = siege.LoadDump(c.replay); err != nil {
			return o, err
		}
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64N(1e9)
	}
	o.Dump, o.Watchdog, o.Args = c.dump, c.watchdog, []string{chaosWorkerCommand}
	o.KeeperArgs = []string{keeper.Subcommand}
	return o, nil
}

func runChaos(cmd *cobra.Command, c chaosFlags) (err error) {
	o, err := c.options(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	progress := terminal(cmd.ErrOrStderr())
	o.Say = func(text string) { progress.Show(0, 1, text) }
	fmt.Fprintf(cmd.ErrOrStderr(), "bench: chaos with seed %d for %v\n", o.Seed, o.Duration)
	var remove func()
	o.Program, o.Failpoints, remove, err = failpointProgram()
	defer remove()
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "bench: warning: no failpoints, only random times: %v\n", err)
	}
	r, err := siege.Run(cmd.Context(), o)
	progress.Clear()
	if err != nil {
		return err
	}
	if c.json {
		err = report.Encode(cmd.OutOrStdout(), r)
	} else {
		err = r.Write(cmd.OutOrStdout())
	}
	if err == nil && r.Violation != "" {
		err = fmt.Errorf("seed %d: violation (see %s)", r.Seed, r.Dump)
	}
	return err
}

// failpointProgram finds the program that workers run: this one, if it has failpoints, or one that is built now. Without them the
// error says why.
func failpointProgram() (program string, has bool, remove func(), err error) {
	remove = func() {}
	if program, err = os.Executable(); err != nil || failpoint.Enabled {
		return program, failpoint.Enabled, remove, err
	}
	tool, err := exec.LookPath("go")
	if err != nil {
		return program, false, remove, err
	}
	dir, err := os.MkdirTemp("", "hb-bench-")
	if err != nil {
		return program, false, remove, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	built := filepath.Join(dir, "bench")
	build := exec.Command(tool, "build", "-tags", "failpoint", "-o", built, "github.com/hugebus/hugebus/bench")
	if said, err := build.CombinedOutput(); err != nil {
		return program, false, remove, fmt.Errorf("go build -tags failpoint: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return built, true, remove, nil
}

// newKeeper is the hidden command that a broker of chaos starts to keep its topics.
func newKeeper() *cobra.Command {
	return &cobra.Command{
		Use: keeper.Subcommand, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if status := keeper.Main(args); status != 0 {
				return fmt.Errorf("keeper: status %d", status) // it has logged why
			}
			return nil
		},
	}
}

const chaosWorkerCommand = "chaos-worker"

// newChaosWorker is the hidden command that chaos starts this program with.
func newChaosWorker() *cobra.Command {
	return &cobra.Command{
		Use:    chaosWorkerCommand + " ROLE SPECIFICATION",
		Short:  "One process of chaos (started by bench itself)",
		Args:   cobra.ExactArgs(2),
		Hidden: true,
		RunE:   func(cmd *cobra.Command, args []string) error { return siege.Worker(cmd.Context(), args[0], args[1]) },
	}
}
