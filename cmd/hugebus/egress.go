package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/egress"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/gateway/codec"
)

type egressFlags struct {
	listenFlags
	topic, codec, from  string
	lossy               bool
	linger              time.Duration
	maxLag, history     string
	slow                string
	writeTimeout, drain time.Duration
	writers             int
	wait                string
}

func (a *app) egressCommand() *cobra.Command {
	var f egressFlags
	cmd := &cobra.Command{
		Use:   "egress --listen ADDR --topic NAME",
		Short: "Push a topic to TCP clients",
		Long: `Accept TCP (or Unix socket) connections and send each what is published, from when it was accepted on.
The address that it listens on is printed on standard output (port 0 takes a free port).

Codecs: len32, a length of 4 bytes (most significant first) and then the payload; line, a payload and a
newline (payloads with a newline in them are left out, and counted).

A client that does not read has --max-lag bytes wait for it, then it is skipped forward to the newest
frame (--slow skip) and told so, by the length ffffffff and two numbers of 8 bytes, frames and bytes, or by the line
"!gap frames=N bytes=N"; or it is closed (--slow close). No client holds the topic's publishers up; this process
does if it is too slow, unless --lossy says otherwise.

With --from earliest it begins with the earliest frame that the topic holds, and a new client first gets the last
--history bytes of what was sent.

SIGTERM and Ctrl-C: it accepts no more, lets clients take what waits for them (--drain-timeout), and exits with 0.`,
		Example: `  hugebus egress --listen 127.0.0.1:7071 --topic ticks
  hugebus egress --listen unix:///run/ticks.sock --topic ticks --codec line --slow close
  nc 127.0.0.1 7071`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.egress(cmd, f) },
	}
	flags := cmd.Flags()
	f.add(flags)
	f.addTLS(flags)
	flags.StringVar(&f.topic, "topic", "", "topic to read")
	flags.StringVar(&f.codec, "codec", codec.Default, "how frames stand in the stream: "+strings.Join(codec.Names(), " or "))
	flags.StringVar(&f.from, "from", "latest", "where to begin: latest or earliest (still held)")
	flags.BoolVar(&f.lossy, "lossy", false, "do not hold publishers back when this process is too slow; tell clients what was missed")
	flags.DurationVar(&f.linger, "linger", 0, "let a frame wait this long for others, to send more with one call")
	flags.StringVar(&f.maxLag, "max-lag", "8MiB", "bytes that may wait for a client")
	flags.StringVar(&f.slow, "slow", "skip", "what to do with a client that lags by more: skip or close")
	flags.StringVar(&f.history, "history", "", "with --from earliest: bytes that a new client first gets (default, and at most: half of --max-lag)")
	flags.DurationVar(&f.writeTimeout, "write-timeout", 0, "close a client that takes nothing for this long while something waits (default 1m; negative: never)")
	flags.DurationVar(&f.drain, "drain-timeout", 0, "when stopping, let clients take what waits for this long (default 5s; negative: not at all)")
	flags.IntVar(&f.writers, "writers", 0, "goroutines that send (default: processors, at most 8)")
	waitFlag(cmd, &f.wait, "for frames")
	completeCodec(cmd)
	completeWords(cmd, "from", "latest", "earliest")
	completeWords(cmd, "slow", "skip", "close")
	a.completeTopic(cmd, "topic")
	return cmd
}

// config is the flags as the gateway takes them.
func (f *egressFlags) config(cmd *cobra.Command) (c egress.Config, o egress.Options, err error) {
	c = egress.Config{
		Listen: f.listen, Codec: f.codec, Linger: f.linger, Writers: f.writers, MaxConns: f.maxConns, MaxConnsPerAddr: f.maxPerAddr,
		WriteTimeout: f.writeTimeout, HandshakeTimeout: f.handshake, DrainTimeout: f.drain, CloseSlow: f.slow == "close",
	}
	o.Name = "egress"
	if c.Socket, err = f.settings(cmd); err != nil {
		return c, o, err
	}
	if f.topic == "" {
		return c, o, usage(cmd, "--topic is missing: give the name of the topic to read")
	}
	if err := control.CheckTopicName(f.topic); err != nil {
		return c, o, usage(cmd, "--topic: %w", err)
	}
	if _, err := codec.Lookup(f.codec); err != nil {
		return c, o, usage(cmd, "--codec: %w", err)
	}
	if f.slow != "skip" && f.slow != "close" {
		return c, o, usage(cmd, "--slow %q: use skip or close", f.slow)
	}
	lag, err := size(cmd, "max-lag", f.maxLag)
	if err != nil {
		return c, o, err
	}
	c.MaxLag = int(lag)
	if err := f.begin(cmd, &c, &o); err != nil {
		return c, o, err
	}
	if f.lossy {
		o.Policy = client.Lossy
	}
	if o.Wait, err = client.ParseWait(f.wait); err != nil {
		return c, o, usage(cmd, "--wait: %w", err)
	}
	return c, o, nil
}

// begin is where the topic, and each client, begins.
func (f *egressFlags) begin(cmd *cobra.Command, c *egress.Config, o *egress.Options) error {
	switch f.from {
	case "latest":
		if f.history != "" {
			return usage(cmd, "--history goes with --from earliest: add that, or leave it out")
		}
	case "earliest":
		o.Start = client.Earliest()
		c.History = c.MaxLag / 2
		if f.history != "" {
			n, err := size(cmd, "history", f.history)
			if err != nil {
				return err
			}
			c.History = int(n)
		}
	default:
		return usage(cmd, "--from %q: use latest or earliest", f.from)
	}
	return nil
}

func (a *app) egress(cmd *cobra.Command, f egressFlags) error {
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
	e := untilSignal(cmd.Context())
	defer e.close()
	c, err := a.dial(e.stop, cmd)
	if err != nil {
		return stopped(e, err)
	}
	defer func() { _ = c.Close() }() // the subscription is closed before
	out, err := egress.New(e.stop, c, f.topic, options, config)
	if err != nil {
		return stopped(e, err)
	}
	end, err := a.announce(out, f.metrics, config.Logger)
	if err != nil {
		return err
	}
	defer end()
	err = out.Serve(e.stop)
	s := out.Stats()
	a.say("pushed from %s: %d frames to %d connections, %d deliveries, %d skipped", f.topic, s.Read, s.Accepted, s.Delivered-s.SkippedFrames, s.SkippedFrames)
	if err != nil {
		return fmt.Errorf("egress on %s: %w", out.Addr(), err)
	}
	return nil
}
