package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/internal/keeper"
)

func (a *app) brokerCommand() *cobra.Command {
	var config, metrics, keeperLog string
	var stuckClaim time.Duration
	var noKeeper bool
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run the broker, until SIGTERM or Ctrl-C",
		Long: `Run the broker: it makes topics, hands their memory to publishers and subscribers, and repairs
what dead ones leave behind. It is not on the way of frames: what is attached goes on when it
stops.

Topics outlive it: a small keeper process, or systemd, holds their memory, and the next broker on
the socket goes on with them, however the last one ended. So SIGTERM and a start are an upgrade
that no client notices. ` + "`hugebus shutdown`" + ` ends everything. With --no-keeper topics are gone with
the broker.

Without --config it serves the user who started it, and root. The configuration (YAML) has
topics, access rules, quotas and the log's level and format (text or json); flags win over it.
The log goes to standard error.`,
		Example: `  hugebus broker
  hugebus broker --no-keeper --socket /tmp/h.sock --metrics 127.0.0.1:9090
  hugebus broker --config /etc/hugebus/broker.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.brokerConfig(cmd, config, metrics)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("stuck-claim") {
				if stuckClaim <= 0 {
					return usage(cmd, "--stuck-claim: %v is not above 0", stuckClaim)
				}
				c.StuckClaim = stuckClaim
			}
			if !noKeeper {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("the keeper is this program, which cannot be found: %w", err)
				}
				c.Keeper = broker.KeeperConfig{Mode: broker.KeepBySystem, Exec: []string{self, keeper.Subcommand}, LogFile: keeperLog}
			}
			return a.runBroker(cmd.Context(), c)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file (YAML)")
	cmd.Flags().StringVar(&metrics, "metrics", "", "address for Prometheus (/metrics) and pprof (/debug/pprof/), as HOST:PORT; port 0 takes a free one; off if empty")
	cmd.Flags().BoolVar(&noKeeper, "no-keeper", false, "let everything end with the broker")
	cmd.Flags().StringVar(&keeperLog, "keeper-log", "", "file that gets what a keeper process logs")
	cmd.Flags().DurationVar(&stuckClaim, "stuck-claim", broker.DefaultStuckClaim, "how long a living publisher may hold a claim before it is named in the log, in lists and in figures")
	must(cmd.MarkFlagFilename("config", "yaml", "yml"))
	return cmd
}

// brokerConfig is what the file says, unless a flag or the environment says otherwise.
func (a *app) brokerConfig(cmd *cobra.Command, file, metrics string) (broker.Config, error) {
	var c broker.Config
	if file != "" {
		var err error
		if c, err = broker.LoadConfig(file); err != nil {
			return c, err
		}
	}
	if c.Socket == "" || cmd.Flags().Changed("socket") || os.Getenv(socketEnv) != "" {
		c.Socket = a.socket
	}
	if cmd.Flags().Changed("metrics") {
		c.Metrics = metrics
	}
	return c, nil
}

func (a *app) runBroker(ctx context.Context, c broker.Config) error {
	if err := c.Check(); err != nil {
		return err
	}
	c.Logger = c.NewLogger(a.err)
	slog.SetDefault(c.Logger)
	e := untilSignal(ctx)
	defer e.close()
	b, err := broker.New(c)
	if err != nil {
		return err
	}
	if err := b.Serve(e.stop); err != nil {
		return fmt.Errorf("broker on %s: %w", b.Addr(), err)
	}
	return nil
}
