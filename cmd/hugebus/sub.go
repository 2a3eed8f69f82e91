package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/pump"
)

type subFlags struct {
	group      string
	lossy      bool
	evictAfter time.Duration
	from       string
	count      uint64
	format     string
	wait       string
}

func (a *app) subCommand() *cobra.Command {
	var f subFlags
	cmd := &cobra.Command{
		Use:   "sub NAME",
		Short: "Print the frames of a topic",
		Long: `Print the frames of a topic, from now on unless --from says otherwise.

By default it misses nothing: publishers wait when it is slow. With --lossy they do not, and it
tells on standard error (and in JSON) exactly what it missed; --evict-after waits for it that
long, and makes it lossy then. With --group it is one of several workers: each frame goes to one
member of the group, and is acknowledged when it was written; what a member did not finish goes
to another one.

Ctrl-C and SIGTERM end it: what it has taken is written first.

Formats: line (payload and newline), hex, json (an object in each line), raw (payloads only).`,
		Example: `  hugebus sub orders
  hugebus sub orders --from earliest --count 10 --format json
  hugebus sub orders --group workers
  hugebus sub ticks --lossy --format hex`,
		Args:              topicArg,
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.sub(cmd, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.group, "group", "", "join this group: its members share the frames")
	flags.BoolVar(&f.lossy, "lossy", false, "never hold publishers back; report what was missed")
	flags.DurationVar(&f.evictAfter, "evict-after", 0, "hold publishers back for this long at most, then be lossy")
	flags.StringVar(&f.from, "from", "latest", "where to begin: latest, earliest (still held), or a position; for a group, only if it is new")
	flags.Uint64Var(&f.count, "count", 0, "end after this many frames; 0: until Ctrl-C")
	flags.StringVar(&f.format, "format", "line", "line, hex, json or raw")
	waitFlag(cmd, &f.wait, "for frames")
	completeFormat(cmd)
	completeWords(cmd, "from", "latest", "earliest")
	return cmd
}

// A subPlan is the flags, parsed.
type subPlan struct {
	policy client.Policy
	start  client.Start
	format pump.Format
	wait   client.Wait
}

func (f subFlags) parse(cmd *cobra.Command) (p subPlan, err error) {
	evict := cmd.Flags().Changed("evict-after")
	switch {
	case cmd.Flags().Changed("group") && (f.lossy || evict):
		return p, usage(cmd, "--lossy and --evict-after do not go with --group: a group's frames wait for its members; leave one of them out")
	case f.lossy && evict:
		return p, usage(cmd, "--lossy and --evict-after do not go together: --evict-after is reliable until its time is over; leave one of them out")
	case evict && f.evictAfter <= 0:
		return p, usage(cmd, "--evict-after %v: give a time above 0, such as 5s", f.evictAfter)
	}
	if cmd.Flags().Changed("group") {
		if err := control.CheckGroupName(f.group); err != nil {
			return p, usage(cmd, "--group: %w", err)
		}
	}
	p.policy = client.Reliable
	if f.lossy {
		p.policy = client.Lossy
	}
	if evict {
		p.policy = client.Evict
	}
	if p.start, err = client.ParseStart(f.from); err != nil {
		return p, usage(cmd, "--from: %w", err)
	}
	if p.format, err = pump.ParseFormat(f.format); err != nil {
		return p, usage(cmd, "--format: %w", err)
	}
	if p.wait, err = client.ParseWait(f.wait); err != nil {
		return p, usage(cmd, "--wait: %w", err)
	}
	return p, nil
}

func (a *app) sub(cmd *cobra.Command, topic string, f subFlags) error {
	p, err := f.parse(cmd)
	if err != nil {
		return err
	}
	// A reader that has gone, as head does, is an error of the next write, and no reason to die in the middle.
	signal.Ignore(syscall.SIGPIPE)
	e := untilSignal(cmd.Context())
	defer e.close()
	c, err := a.dial(e.stop, cmd)
	if err != nil {
		return stopped(e, err)
	}
	defer func() { _ = c.Close() }() // what is attached ends with it
	var src pump.Source
	if f.group != "" {
		src, err = c.Group(e.stop, topic, f.group, client.GroupOptions{Start: p.start, Wait: p.wait})
	} else {
		src, err = c.Subscriber(e.stop, topic, client.SubscriberOptions{
			Policy: p.policy, EvictAfter: f.evictAfter, Start: p.start, Wait: p.wait,
		})
	}
	if err != nil {
		return stopped(e, err)
	}
	defer context.AfterFunc(e.abort, func() {
		// A write to a pipe that nobody reads does not come back.
		a.say("hugebus: %v: standard output is not read", context.Cause(e.abort))
		os.Exit(statusFailed)
	})()
	_, err = pump.Copy(e.stop, src, pump.Sink{
		W: a.out, Format: p.format, Count: f.count, Acknowledge: f.group != "",
		Notice: func(text string) { a.say("hugebus: %s", text) },
	})
	return err
}
