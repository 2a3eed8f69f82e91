package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/resp"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/gateway/door"
)

type gatewayFlags struct {
	listenFlags
	topic                       string
	lossy                       bool
	maxFrame, maxLag, maxMemory string
	maxChannels, maxPipeline    int
	maxTopics                   int
	idle, partial, write, drain time.Duration
	access                      string
	wait                        string
}

func (a *app) gatewayCommand() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway --listen ADDR",
		Short: "Let Redis clients publish and subscribe",
		Long: `Speak the Redis protocol (RESP2 and RESP3) on one port: PUBLISH publishes a frame, SUBSCRIBE and
PSUBSCRIBE get what is published, by Redis clients or by others on the bus. The address that it listens on is
printed on standard output (port 0 takes a free port).

A channel is a topic, made on demand where the broker's rules allow it. With --resp-topic NAME all channels
are in that one topic, so that thousands of them cost no ring each: a frame there begins with the
channel's name (a length of two bytes, most significant first, then the name).

Commands: AUTH, CLIENT, COMMAND, CONFIG, ECHO, HELLO, INFO, PING, PSUBSCRIBE, PUBLISH, PUBSUB, PUNSUBSCRIBE, QUIT,
RESET, SELECT, SUBSCRIBE, UNSUBSCRIBE. A topic that is full holds publishers up; a subscriber
that does not read is closed when --max-lag waits for it.

--access FILE has a line for each identity, such as "alice token=SECRET publish=orders.* subscribe=ticks,orders.*". A
client shows a token with AUTH or HELLO, or (--tls-client-ca) a certificate in that name.`,
		Example: `  hugebus gateway --listen 127.0.0.1:6379 --resp-topic chat
  redis-cli subscribe room
  redis-cli publish room hello`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.gateway(cmd, f) },
	}
	flags := cmd.Flags()
	f.add(flags)
	f.addTLS(flags)
	flags.StringVar(&f.topic, "resp-topic", "", "topic that all channels are in (default: each channel is a topic)")
	flags.BoolVar(&f.lossy, "lossy", false, "do not hold publishers back when this process is too slow")
	flags.StringVar(&f.maxFrame, "max-frame", "1MiB", "largest message, and argument of any command")
	flags.StringVar(&f.maxLag, "max-lag", "32MiB", "bytes that may wait for a client before it is closed")
	flags.StringVar(&f.maxMemory, "max-memory", "256MiB", "bytes of messages that may wait for all clients together")
	flags.IntVar(&f.maxChannels, "max-channels", 0, "channels and patterns of one connection (default 10000)")
	flags.IntVar(&f.maxTopics, "max-topics", 0, "topics that are read, and as many that are published to at a time, without --resp-topic (default 512)")
	flags.IntVar(&f.maxPipeline, "max-pipeline", 0, "commands whose replies a client has not read (default 1000000)")
	flags.DurationVar(&f.idle, "idle-timeout", 0, "close a connection that sends nothing for this long and has subscribed to nothing (default: never)")
	flags.DurationVar(&f.partial, "partial-timeout", 0, "close a connection that does not finish a command in this time (default 1m; negative: never)")
	flags.DurationVar(&f.write, "write-timeout", 0, "close a client that takes nothing for this long while something waits (default 1m; negative: never)")
	flags.DurationVar(&f.drain, "drain-timeout", 0, "when stopping, let clients take what waits for this long (default 5s; negative: not at all)")
	flags.StringVar(&f.access, "access", "", "file of identities, their tokens and what they may do (default: everybody may do everything)")
	waitFlag(cmd, &f.wait, "for frames")
	a.completeTopic(cmd, "resp-topic")
	return cmd
}

// config is the flags as the gateway takes them.
func (f *gatewayFlags) config(cmd *cobra.Command) (c resp.Config, o resp.Options, err error) {
	c = resp.Config{
		Listen: f.listen, Topic: f.topic, MaxConns: f.maxConns, MaxConnsPerAddr: f.maxPerAddr, MaxChannels: f.maxChannels, MaxPipeline: f.maxPipeline, MaxTopics: f.maxTopics,
		IdleTimeout: f.idle, PartialTimeout: f.partial, WriteTimeout: f.write, HandshakeTimeout: f.handshake, DrainTimeout: f.drain,
	}
	o.Name = "gateway"
	if c.Socket, err = f.settings(cmd); err != nil {
		return c, o, err
	}
	if f.topic != "" {
		if err := control.CheckTopicName(f.topic); err != nil {
			return c, o, usage(cmd, "--resp-topic: %w", err)
		}
	}
	for _, s := range []struct {
		name, text string
		set        func(n int64)
	}{
		{"max-frame", f.maxFrame, func(n int64) { c.MaxFrame = int(n) }},
		{"max-lag", f.maxLag, func(n int64) { c.MaxLag = int(n) }},
		{"max-memory", f.maxMemory, func(n int64) { c.MaxMemory = n }},
	} {
		n, err := size(cmd, s.name, s.text)
		if err != nil {
			return c, o, err
		}
		s.set(n)
	}
	if f.lossy {
		o.Policy = client.Lossy
	}
	if o.Wait, err = client.ParseWait(f.wait); err != nil {
		return c, o, usage(cmd, "--wait: %w", err)
	}
	return c, o, nil
}

func (a *app) gateway(cmd *cobra.Command, f gatewayFlags) error {
	config, options, err := f.config(cmd)
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
	if f.access != "" {
		if config.Rules, err = door.ReadRules(f.access); err != nil {
			return err
		}
	}
	e := untilSignal(cmd.Context())
	defer e.close()
	c, err := a.dial(e.stop, cmd)
	if err != nil {
		return stopped(e, err)
	}
	defer func() { _ = c.Close() }() // what it has attached is closed before
	gw, err := resp.New(e.stop, c, options, config)
	if err != nil {
		return stopped(e, err)
	}
	end, err := a.announce(gw, f.metrics, config.Logger)
	if err != nil {
		return err
	}
	defer end()
	err = gw.Serve(e.stop)
	s := gw.Stats()
	a.say("gateway: %d commands from %d connections, %d frames published, %d given up, %d messages delivered", s.Commands, s.Accepted, s.Published, s.GivenUp, s.Delivered)
	if err != nil {
		return fmt.Errorf("gateway on %s: %w", gw.Addr(), err)
	}
	return nil
}
