package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/keeper"
)

// keeperCommand is what the broker starts to keep its topics.
func keeperCommand() *cobra.Command {
	return &cobra.Command{
		Use: keeper.Subcommand, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if status := keeper.Main(args); status != 0 {
				return errReported // it has logged why
			}
			return nil
		},
	}
}

// shutdownPatience is how long a broker and its keeper may take to end.
const shutdownPatience = 30 * time.Second

func (a *app) shutdownCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "shutdown",
		Short: "End the broker and its keeper, with all topics",
		Long: `End the broker, if one runs, and the keeper process that keeps its topics beyond its death. All
topics are removed: who is attached is told, and can read what is left. Only the broker's own user
and root may do it.

To stop the broker alone, for an upgrade, send it SIGTERM: the next one goes on with the topics.`,
		Example: `  hugebus shutdown
  hugebus shutdown --socket /tmp/h.sock`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), shutdownPatience)
			defer cancel()
			return a.shutdown(ctx)
		},
	}
}

// shutdown ends whoever is there.
func (a *app) shutdown(ctx context.Context) error {
	stopped, err := a.stopBroker(ctx)
	if err != nil {
		return err
	}
	for {
		err := keeper.Shutdown(ctx, a.socket+keeper.SocketSuffix)
		switch {
		case errors.Is(err, keeper.ErrNotRunning) && !stopped:
			return fmt.Errorf("no broker and no keeper at %s", a.socket)
		case errors.Is(err, keeper.ErrNotRunning):
			return a.removeSocket()
		case err == nil:
			return a.removeSocket()
		case !errors.Is(err, keeper.ErrHeld) || ctx.Err() != nil:
			return err
		}
		// A broker that ends has the lease still, or one hangs.
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stopBroker tells a broker to end; false: there is none that answers.
func (a *app) stopBroker(ctx context.Context) (bool, error) {
	const answers = 2 * time.Second // a keeper may hold the socket for a broker that is gone
	short, cancel := context.WithTimeout(ctx, answers)
	defer cancel()
	c, err := client.Dial(short, client.Options{Socket: a.socket, Name: "hugebus shutdown", Logger: a.logger()})
	switch {
	case errors.Is(err, client.ErrBrokerUnavailable), errors.Is(err, context.DeadlineExceeded):
		return false, nil
	case err != nil:
		return false, err
	}
	err = c.StopBroker(ctx)
	if closeErr := c.Close(); err == nil && closeErr != nil {
		err = closeErr
	}
	return err == nil, err
}

// removeSocket removes the file of a socket that nobody listens on any more.
func (a *app) removeSocket() error {
	if err := os.Remove(a.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket: %w", err)
	}
	return nil
}
