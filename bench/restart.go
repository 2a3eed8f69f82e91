package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/restart"
	"github.com/hugebus/hugebus/internal/keeper"
)

const restartLong = `Restart measures what the broker's death costs those who use it. One process publishes as fast as
its subscriber reads, and that one checks that every frame comes, in order. "pause" is the time between
two frames of the publisher: first without kills; then, as long in all, while the broker that was killed
(SIGKILL) is away; then, as long in all, while the next one starts, on the same cores, and serves. "start"
is the time from the next broker's start until it serves, "return" from there until the last of all
clients has an answer from it.

Beside the load there are topics and clients, each with a lane: what each costs the broker is
reported too. All clients are in one process, which needs seven descriptors for each.`

func newRestart() *cobra.Command {
	o := restart.Options{Patience: time.Minute}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "restart",
		Short: "Measure what the broker's death costs its clients, and what many of them cost it",
		Long:  restartLong,
		Example: `  go run ./bench restart
  go run ./bench restart --topics 1000 --clients 1000 --kills 10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Topics < 1 || o.Clients < 1 || o.Kills < 1 || o.Span <= 0 {
				return fmt.Errorf("--topics %d --clients %d --kills %d --span %v: use at least 1 of each", o.Topics, o.Clients, o.Kills, o.Span)
			}
			o.Broker = func(socket string) []string { return []string{restartWorkerCommand, "broker", socket} }
			o.Load = func(socket string) []string { return []string{restartWorkerCommand, "load", socket} }
			progress := terminal(cmd.ErrOrStderr())
			o.Say = func(text string) { progress.Show(0, 1, text) }
			r, err := restart.Run(cmd.Context(), o)
			progress.Clear()
			if err != nil {
				return err
			}
			if asJSON {
				return report.Encode(cmd.OutOrStdout(), r)
			}
			return writeRestart(cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().IntVar(&o.Topics, "topics", 10, "topics beside the load's")
	cmd.Flags().IntVar(&o.Clients, "clients", 10, "clients beside the load's")
	cmd.Flags().IntVar(&o.Kills, "kills", 10, "how often the broker is killed")
	cmd.Flags().DurationVar(&o.Span, "span", time.Second, "time from one kill to the next, at least")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the result as JSON, with whole histograms")
	return cmd
}

func writeRestart(w io.Writer, r restart.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tcount\tp50\tp99\tp99.9\tworst\t")
	for _, row := range []struct {
		name string
		d    restart.Times
	}{
		{"pause, no kills", r.Quiet}, {"pause, broker away", r.Away}, {"pause, broker anew", r.Anew}, {"start", r.Start}, {"return", r.Return},
		{"create a topic", r.Create}, {"dial", r.Dial}, {"attach a lane", r.Attach},
	} {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t\n", row.name, row.d.Count, report.Duration(row.d.P50.Nanoseconds()),
			report.Duration(row.d.P99.Nanoseconds()), report.Duration(row.d.P999.Nanoseconds()), report.Duration(row.d.Max.Nanoseconds()))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d kills, %d frames checked, none lost; %d clients came back each time\n"+
		"the broker's own memory: %d bytes and %.1f descriptors for each of %d topics, %d bytes and %.1f descriptors for each of %d clients\n",
		r.Kills, r.Frames, r.Clients, r.TopicBytes, r.TopicFiles, r.Topics, r.ClientBytes, r.ClientFiles, r.Clients)
	return err
}

const restartWorkerCommand = "restart-worker"

// newRestartWorker is the hidden command that restart starts this program with.
func newRestartWorker() *cobra.Command {
	return &cobra.Command{
		Use:    restartWorkerCommand + " broker|load SOCKET",
		Short:  "One process of restart (started by bench itself)",
		Args:   cobra.ExactArgs(2),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "load":
				return restart.Load(cmd.Context(), args[1])
			case "broker":
				self, err := os.Executable()
				if err != nil {
					return err
				}
				return restart.Broker(cmd.Context(), args[1], []string{self, keeper.Subcommand})
			}
			return fmt.Errorf("role %q is not one of broker, load", args[0])
		},
	}
}
