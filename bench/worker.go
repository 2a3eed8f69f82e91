package main

import (
	"context"
	"os"
	"os/signal"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/crowd"
	"github.com/hugebus/hugebus/bench/internal/raw"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/bench/internal/workload"
)

const workerCommand = "worker"

// newWorker is the hidden command that this program starts itself with, once for each
// side of a measurement.
func newWorker() *cobra.Command {
	core := worker.Unpinned
	cmd := &cobra.Command{
		Use:    workerCommand,
		Short:  "One process of a measurement (started by bench itself)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			// An interrupt from the terminal comes to the parent too, which ends us.
			signal.Ignore(os.Interrupt)
			return worker.Serve(roles(), core, os.Stdin, os.Stdout)
		},
	}
	cmd.Flags().IntVar(&core, "core", core, "core to run on; -1: any")
	return cmd
}

func roles() map[string]worker.Role {
	return worker.Join(raw.Roles(), workload.Roles(), crowd.Roles())
}

// startTeam starts a worker on each core, with the raw segment as their file.
func startTeam(ctx context.Context, cores []int, limits *raw.Limits) (*worker.Team, error) {
	return worker.Start(ctx, worker.Options{
		Args:   func(core int) []string { return []string{workerCommand, "--core", strconv.Itoa(core)} },
		Cores:  cores,
		Files:  []*os.File{limits.Segment().File()},
		Stderr: os.Stderr,
	})
}
