package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/workload"
)

// maxProcesses bounds how many processes a side has.
const maxProcesses = 32

const fanLong = `The processes take turns on the two cores, so from three on they outnumber them: they wait the
default way, and --wait spin shows what spinning processes do to each other then. Every reader checks
the order of every publisher's frames, and that it has all of them. Frames per second are those
published, until the last of them was read; each reader reads all of them, but in a group.`

// fanFlags are those of fanout, fanin and group.
type fanFlags struct {
	busFlags
	publishers, readers []int
}

// newFan makes one of the subcommands with several processes on a side.
func newFan(use, short, long string, group bool, publishers, readers []int) *cobra.Command {
	var c fanFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long + "\n\n" + fanLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd, use, group) },
	}
	c.common.register(cmd, 500*time.Millisecond)
	c.busFlags.register(cmd, "4MiB")
	defaultRounds(cmd, 3)
	f := cmd.Flags()
	wait := f.Lookup("wait")
	wait.DefValue, c.wait = "adaptive", "adaptive"
	f.IntSliceVar(&c.publishers, "publishers", publishers, "numbers of publishing processes")
	f.IntSliceVar(&c.readers, "readers", readers, "numbers of reading processes")
	hide(cmd, "read", "pause", "mode")
	return cmd
}

func (c *fanFlags) run(cmd *cobra.Command, scenario string, group bool) error {
	plan, err := c.plan(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	if c.wait == workload.WaitPoll || plan.Topic.Exclusive || plan.Shape.ReadAll {
		return fmt.Errorf("%s: no --wait poll, --mode exclusive or --read all here", scenario)
	}
	var fans []workload.Fan
	for _, p := range c.publishers {
		for _, r := range c.readers {
			if p < 1 || r < 1 || p > maxProcesses || r > maxProcesses {
				return fmt.Errorf("--publishers %d --readers %d: use from 1 to %d of each", p, r, maxProcesses)
			}
			fans = append(fans, workload.Fan{Publishers: p, Readers: r})
			c.workers = max(c.workers, p+r)
		}
	}
	if len(fans) == 0 {
		return fmt.Errorf("--publishers and --readers: give at least one number each")
	}
	prepare := func(_ context.Context, b *workload.Bus, p workload.Plan) ([]workload.Measured, error) {
		return workload.Fans(b, p, scenario, fans, group), nil
	}

	return c.measure(cmd, plan, prepare, transfers[:1])
}
