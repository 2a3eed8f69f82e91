package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/ingress"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/gateway/codec"
	"github.com/hugebus/hugebus/internal/gateway/door"
)

type ingressFlags struct {
	listenFlags
	topic, codec         string
	maxFrame             string
	lanes, acceptors     int
	idle, partial, drain time.Duration
	wait                 string
}

func (a *app) ingressCommand() *cobra.Command {
	var f ingressFlags
	cmd := &cobra.Command{
		Use:   "ingress --listen ADDR --topic NAME",
		Short: "Accept frames over TCP or UDP and publish them",
		Long: `Accept TCP (or Unix socket) connections, cut their streams into frames and publish these to a topic, many at a
time. The address that it listens on is printed on standard output (port 0 takes a free port).

Codecs: len32, a length of 4 bytes (most significant first) and then the payload; line, a line
without its newline. A frame above the limit closes its connection; others go on. When the
topic is full, it stops reading and TCP slows the senders down: nothing is dropped.

With udp://HOST:PORT each datagram is a frame, received and published many at a time. What is above the frame limit is thrown
away; when the topic is full nothing is read, and the kernel drops what its buffer (--recv-buffer) does not hold. Both are
logged, and counted in the figures.

SIGTERM and Ctrl-C: it accepts no more, publishes every whole frame that was received, says what
was left, and exits with 0. A second signal gives up what waits for room in a full topic.`,
		Example: `  hugebus ingress --listen 127.0.0.1:7070 --topic orders
  hugebus ingress --listen :0 --topic logs --codec line --max-frame 64KiB --idle-timeout 5m
  hugebus ingress --listen udp://127.0.0.1:7070 --topic telemetry --recv-buffer 4MiB
  seq 1 100000 | nc -N 127.0.0.1 7070`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ingress(cmd, f) },
	}
	flags := cmd.Flags()
	f.add(flags)
	f.addTLS(flags)
	flags.StringVar(&f.topic, "topic", "", "topic to publish to")
	flags.StringVar(&f.codec, "codec", codec.Default, "how frames stand in the stream: "+strings.Join(codec.Names(), " or "))
	flags.StringVar(&f.maxFrame, "max-frame", "", "largest payload of a frame (default, and at most: the topic's)")
	flags.IntVar(&f.lanes, "lanes", 0, "connections that are read at the same time, and publisher slots (default: processors, at most 8); for udp:// sockets that share the port (default 1)")
	flags.IntVar(&f.acceptors, "acceptors", 0, "listening sockets that share the port (SO_REUSEPORT), each accepting by itself (default 1)")
	flags.DurationVar(&f.idle, "idle-timeout", 0, "close a connection that sends nothing for this long (default: never)")
	flags.DurationVar(&f.partial, "partial-timeout", 0, "close a connection that does not finish a frame in this time (default 1m; negative: never)")
	flags.DurationVar(&f.drain, "drain-timeout", 0, "when stopping, wait for room in a full topic for this long at most (default: without end)")
	waitFlag(cmd, &f.wait, "while the topic is full")
	completeCodec(cmd)
	a.completeTopic(cmd, "topic")
	return cmd
}

// config is the flags as the gateway takes them.
func (f *ingressFlags) config(cmd *cobra.Command) (ingress.Config, client.Wait, error) {
	c := ingress.Config{
		Listen: f.listen, Codec: f.codec, Lanes: f.lanes, MaxConns: f.maxConns, MaxConnsPerAddr: f.maxPerAddr,
		Acceptors: f.acceptors, HandshakeTimeout: f.handshake, IdleTimeout: f.idle, PartialTimeout: f.partial, DrainTimeout: f.drain,
	}
	if network, _ := door.Split(f.listen); network == "udp" && !cmd.Flags().Changed("codec") {
		c.Codec = "" // the flag's default is for streams
	}
	var err error
	if c.Socket, err = f.settings(cmd); err != nil {
		return c, 0, err
	}
	if f.topic == "" {
		return c, 0, usage(cmd, "--topic is missing: give the name of the topic to publish to")
	}
	if err := control.CheckTopicName(f.topic); err != nil {
		return c, 0, usage(cmd, "--topic: %w", err)
	}
	if _, err := codec.Lookup(f.codec); err != nil {
		return c, 0, usage(cmd, "--codec: %w", err)
	}
	if f.maxFrame != "" {
		n, err := size(cmd, "max-frame", f.maxFrame)
		if err != nil {
			return c, 0, err
		}
		c.MaxFrame = int(n)
	}
	wait, err := client.ParseWait(f.wait)
	if err != nil {
		return c, 0, usage(cmd, "--wait: %w", err)
	}
	return c, wait, nil
}

func (a *app) ingress(cmd *cobra.Command, f ingressFlags) error {
	config, wait, err := f.config(cmd)
	if err != nil {
		return err
	}
	config.Logger = a.logger()
	if config.Secure, err = f.secure(cmd, config.Logger); err != nil {
		return err
	}
	if err := config.Check(); err != nil {
		return usage(cmd, "%w", err)
	}
	e := untilSignal(cmd.Context())
	defer e.close()
	c, err := a.dial(e.stop, cmd)
	if err != nil {
		return stopped(e, err)
	}
	defer func() { _ = c.Close() }() // lanes are closed before
	if t, err := c.Topic(e.stop, f.topic); err == nil && t.Exclusive && config.Lanes == 0 {
		config.Lanes = 1 // such a topic has one publisher slot; if it cannot be looked at, opening the lanes says why
	}
	config.NewLane = func(ctx context.Context) (ingress.Lane, error) {
		return c.Lane(ctx, f.topic, client.PublisherOptions{Wait: wait})
	}
	in, err := ingress.New(e.stop, c, f.topic, config)
	if err != nil {
		return stopped(e, err)
	}
	end, err := a.announce(in, f.metrics, config.Logger)
	if err != nil {
		return err
	}
	defer end()
	return a.serve(e, in, f.topic)
}

// serve runs the ingress until it was told to stop, and says what it did.
func (a *app) serve(e ending, in *ingress.Ingress, topic string) error {
	defer context.AfterFunc(e.abort, in.Abort)()
	defer a.reminder(e, topic)()
	err := in.Serve(e.stop)
	s := in.Stats()
	source := fmt.Sprintf("%d connections", s.Accepted)
	if in.Addr().Network() == "udp" {
		source = fmt.Sprintf("%d datagrams; %d more were dropped by the kernel", s.Datagrams, s.Dropped)
	}
	a.say("published to %s: %d frames, %d bytes from %s", topic, s.Frames, s.Bytes, source)
	if s.StopPartial > 0 {
		a.say("hugebus: %d bytes of frames that had not come whole were left", s.StopPartial)
	}
	if err != nil {
		return fmt.Errorf("ingress on %s: %w", in.Addr(), err)
	}
	return nil
}
