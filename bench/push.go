package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/crowd"
	"github.com/hugebus/hugebus/bench/internal/server"
	"github.com/hugebus/hugebus/bench/internal/workload"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/shm"
)

const pushLong = `Push measures the bus out to TCP: thousands of clients of an egress, and of NATS and Redis, that all get what one
publisher publishes. One process has the publisher and all clients, which check every frame, its sequence and its checksum; the
same code reads them for each system, with one loop over epoll. The server is the other process.

Without a rate ("max") the publisher is ahead of the average client by --window frames at most, so that nobody is drowned; then
frames/s is what counts: deliveries. At a rate, frames are published whatever became of those before, and times are from
when a frame was to be published until a client has it: there is no coordinated omission.`

// pushed are the systems that push measures.
var pushed = []string{workload.System, crowd.NATS, crowd.Redis}

type pushFlags struct {
	crowdFlags
	systems []string
	window  int
	linger  time.Duration
}

func newPush() *cobra.Command {
	var c pushFlags
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Measure the bus out to thousands of TCP clients, beside NATS and Redis",
		Long:  pushLong,
		Example: `  go run ./bench push
  go run ./bench push --clients 1000 --rate max --window 256
  go run ./bench push --clients 10000 --rate 50 --duration 10s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.measure(cmd) },
	}
	c.common.register(cmd, 2*time.Second)
	defaultRounds(cmd, 3)
	c.register(cmd, "clients", "128", []int{1000, 10000}, []string{"max", "50"},
		"clients of each load", "frames published per second, one rate for each load; max: as fast as the clients take them")
	f := cmd.Flags()
	f.StringSliceVar(&c.systems, "systems", pushed, "which to measure")
	f.IntVar(&c.window, "window", 1024, "with max: frames that may be on their way to the average client")
	f.DurationVar(&c.linger, "linger", 0, "egress: let a frame wait this long for others")
	return cmd
}

func (c *pushFlags) parse(changed func(string) bool) ([]crowd.Shape, client.TopicOptions, error) {
	for _, s := range c.systems {
		if !slices.Contains(pushed, s) {
			return nil, client.TopicOptions{}, fmt.Errorf("--systems %q: use some of %s", s, strings.Join(pushed, ", "))
		}
	}
	if c.window < 1 || c.window > maxWindow {
		return nil, client.TopicOptions{}, fmt.Errorf("--window %d: use from 1 to %d", c.window, maxWindow)
	}
	if c.linger < 0 || c.linger > time.Second {
		return nil, client.TopicOptions{}, fmt.Errorf("--linger %v: use from 0 to 1s", c.linger)
	}
	return c.loads(changed, true)
}

// maxWindow bounds --window: what is under way must not be more than an egress lets wait for a client.
const maxWindow = 16384

func (c *pushFlags) measure(cmd *cobra.Command) (err error) {
	shapes, topic, err := c.parse(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	fit, notes, err := fitting(shapes)
	if err != nil {
		return err
	}
	run, err := newRun(cmd, c.common, raw4(), nil, shm.PagesAuto, bounds(c.rawTime))
	if err != nil {
		return err
	}
	defer run.close(&err)
	dir, err := os.MkdirTemp("", "hugebus-push-")
	if err != nil {
		return fmt.Errorf("push: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	servers, err := c.serve(cmd.Context(), dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.close()) }()
	push := &crowd.Push{Dir: dir, Topic: topic}
	if slices.Contains(c.systems, workload.System) {
		if push.Bus, err = workload.OpenBus(cmd.Context()); err != nil {
			return err
		}
		defer closeBus(push.Bus, &err)
	}
	measured := c.cases(push, fit, servers)
	if len(measured) == 0 {
		return errors.New("push: none of --systems is there: " + strings.Join(servers.absent, "; "))
	}
	results, err := run.session(cmd.Context(), c.rounds, measured)
	if err != nil {
		return err
	}
	notes = append(notes, fmt.Sprintf("Medians of %d rounds of %v. Every delivery was checked, and none is missing. frames/s are deliveries.", c.rounds, c.duration))
	notes = append(append(notes, behindNotes(results)...), servers.absent...)
	return c.publish(cmd, run, results, notes...)
}

func (c *pushFlags) cases(push *crowd.Push, shapes []crowd.Shape, servers *rivals) (measured []workload.Measured) {
	for _, s := range shapes {
		shape := crowd.PushShape{Shape: s, Window: c.window, Linger: c.linger}
		if push.Bus != nil {
			shape.System = workload.System
			measured = append(measured, push.Case(shape))
		}
		for _, r := range servers.present {
			shape.System, shape.Address = r.System, r.Server
			measured = append(measured, push.Case(shape))
		}
	}
	return measured
}

// serve starts the servers of others.
func (c *pushFlags) serve(ctx context.Context, dir string) (*rivals, error) {
	r := &rivals{}
	for _, name := range c.systems {
		kind := map[string]string{crowd.NATS: server.NATS, crowd.Redis: server.RedisTCP}[name]
		if kind == "" {
			continue
		}
		if name == crowd.Redis {
			if _, missing := server.RedisProgram(); missing != nil {
				r.absent = append(r.absent, fmt.Sprintf("%s: not measured: %v.", name, missing))
				continue
			}
		}
		own, err := os.MkdirTemp(dir, kind)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("push: %w", err), r.close())
		}
		s, err := server.Start(ctx, kind, own)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.servers = append(r.servers, s)
		r.present = append(r.present, workload.Rival{System: name, Server: strings.TrimPrefix(s.Address, "nats://")})
	}
	return r, nil
}
