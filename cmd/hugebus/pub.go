package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/pump"
	"github.com/hugebus/hugebus/shm"
)

type pubFlags struct {
	size  string
	count uint64
	rate  float64
	wait  string
	quiet bool
}

func (a *app) pubCommand() *cobra.Command {
	var f pubFlags
	cmd := &cobra.Command{
		Use:   "pub NAME",
		Short: "Publish lines of standard input, or generated frames",
		Long: `Publish to a topic: each line of standard input, without its newline, is a frame, and an empty
line is an empty frame. Lines that are there together are published together; a lone line is
published at once. When the topic is full, pub waits for its subscribers.

With --size, frames are generated instead: each holds its number, counted from 1, filled up
with dots.

Ctrl-C and SIGTERM end it: whole lines that were read are published first. A summary goes to
standard error.`,
		Example: `  echo hello | hugebus pub orders
  tail -f app.log | hugebus pub logs
  hugebus pub orders --size 48 --count 1000000
  hugebus pub orders --size 1KiB --rate 50000`,
		Args:              topicArg,
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pub(cmd, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.size, "size", "", "generate frames with payloads of this many bytes")
	flags.Uint64Var(&f.count, "count", 0, "how many frames to generate; 0: until Ctrl-C")
	flags.Float64Var(&f.rate, "rate", 0, "generated frames per second, kept up whatever happened before; 0: as fast as possible")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "no summary")
	waitFlag(cmd, &f.wait, "while the topic is full")
	return cmd
}

// frames is what to generate, and whether to generate.
func (f pubFlags) frames(cmd *cobra.Command) (pump.Frames, bool, error) {
	changed := cmd.Flags().Changed
	if !changed("size") {
		for _, flag := range []string{"count", "rate"} {
			if changed(flag) {
				return pump.Frames{}, false, usage(cmd, "--%s is for generated frames: give their --size too", flag)
			}
		}
		return pump.Frames{}, false, nil
	}
	n, err := shm.ParseSize(f.size)
	if err != nil {
		return pump.Frames{}, false, usage(cmd, "--size: %w", err)
	}
	frames := pump.Frames{Size: int(n), Count: f.count, Rate: f.rate}
	if err := frames.Check(int(n)); err != nil {
		return frames, false, usage(cmd, "--%w", err)
	}
	return frames, true, nil
}

func (a *app) pub(cmd *cobra.Command, topic string, f pubFlags) error {
	frames, generate, err := f.frames(cmd)
	if err != nil {
		return err
	}
	wait, err := client.ParseWait(f.wait)
	if err != nil {
		return usage(cmd, "--wait: %w", err)
	}
	e := untilSignal(cmd.Context())
	defer e.close()
	c, err := a.dial(e.stop, cmd)
	if err != nil {
		return stopped(e, err)
	}
	defer func() { _ = c.Close() }() // what is published is published
	lane, err := c.Lane(e.stop, topic, client.PublisherOptions{Wait: wait})
	if err != nil {
		return stopped(e, err)
	}
	defer a.reminder(e, topic)()
	var totals pump.Totals
	if generate {
		totals, err = pump.Generate(e.stop, e.abort, lane, frames)
	} else {
		in := pump.Interruptible(a.in)
		totals, err = pump.Lines(e.stop, e.abort, in, lane)
		_ = in.Close()
	}
	if !f.quiet {
		a.say("published to %s: %s", topic, totals)
	}
	if totals.Left > 0 {
		a.say("hugebus: the %d bytes behind the last whole line were not published", totals.Left)
	}
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %d frames that were read are not in topic %q", context.Cause(e.abort), totals.GivenUp, topic)
	}
	return err
}

// stopped is nil instead of an error that only says that the command was told to stop.
func stopped(e ending, err error) error {
	if e.stop.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
