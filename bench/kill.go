package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/deaths"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/siege"
)

const killLong = `Kill measures how long the death of a publisher holds subscribers up: it is stopped at a point
between claim and commit, another one publishes behind it, and it is killed. The time is from
just before the signal until the subscriber has the frame behind: the end of the process, the
broker's notice, the repair, and the frame's way.

At ring/publish/before-ring the victim has committed, has taken the word of those who sleep, and
does not live to ring for them: the broker rings.

It needs failpoints, and so the go tool, unless this program was built with -tags failpoint.`

func newKill() *cobra.Command {
	var kills int
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "kill",
		Short:   "Measure how long a publisher's death holds subscribers up",
		Long:    killLong,
		Example: "  go run ./bench kill --kills 1000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kills < 1 {
				return fmt.Errorf("--kills %d: use at least 1", kills)
			}
			return runKill(cmd, kills, asJSON)
		},
	}
	cmd.Flags().IntVar(&kills, "kills", 1000, "how many publishers to kill, at all points together")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write the results as a JSON array")
	return cmd
}

func runKill(cmd *cobra.Command, kills int, asJSON bool) error {
	program, has, remove, err := failpointProgram()
	defer remove()
	if !has {
		return fmt.Errorf("a program with failpoints is needed: %w", err)
	}
	progress := terminal(cmd.ErrOrStderr())
	results, err := deaths.Run(cmd.Context(), deaths.Options{
		Kills: kills, Program: program, VictimArgs: []string{victimCommand}, Patience: 30 * time.Second,
		BrokerArgs: func(socket string) []string {
			return append([]string{chaosWorkerCommand}, siege.BrokerWorker(socket)...)
		},
		Say: func(done int) { progress.Show(done, kills, fmt.Sprintf("%d of %d killed", done, kills)) },
	})
	progress.Clear()
	if err != nil {
		return err
	}
	if asJSON {
		return report.Encode(cmd.OutOrStdout(), results)
	}
	return writeKills(cmd.OutOrStdout(), results)
}

func writeKills(w io.Writer, results []deaths.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "point\tkills\theld up\tmedian\tp99\tworst\trepairs\t")
	for _, r := range results {
		median, p99, worst := "-", "-", "-"
		if r.HeldUp > 0 {
			median, p99, worst = report.Duration(r.Median.Nanoseconds()), report.Duration(r.P99.Nanoseconds()), report.Duration(r.Worst.Nanoseconds())
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%d\t\n", r.Point, r.Kills, r.HeldUp, median, p99, worst, r.Repairs)
	}
	return t.Flush()
}

const victimCommand = "victim"

// newVictim is the hidden command that kill starts this program with.
func newVictim() *cobra.Command {
	return &cobra.Command{
		Use:    victimCommand + " SOCKET POINT",
		Short:  "One publisher of kill (started by bench itself)",
		Args:   cobra.ExactArgs(2),
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return deaths.Victim(args[0], args[1]) },
	}
}
