package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/client"
)

// errStillStuck ends unstick when a process has not answered; what there is to say is printed.
var errStillStuck = errors.New("not every claim was given up: nothing was done to the others, because their processes may be about to write to them")

func (a *app) topicUnstick() *cobra.Command {
	var publisher, pid int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "unstick NAME",
		Short: "Take claims away from publishers that hold them for too long",
		Long: `Take claims away from publishers that live and have held them for longer than the broker's
stuck_claim (1s): those that ` + "`hugebus topic show`" + ` calls stuck. Readers wait in front of such a claim, and
publishers a lap later.

The claim becomes padding, which readers skip, and its publisher is detached: what it has written is
lost, its commit fails with "an operator has taken the claim away", and its program must attach again.
Without --publisher or --pid this is done to every stuck claim of the topic.

Only the publisher's own process can know when it will not write to the claim any more. So it is
asked, and nothing is done before it has answered: one that is stopped, or in the middle of a publish
call, keeps its claim until it goes on, or ends. The command says so, and exits with 1.

It needs the right admin on the topic.`,
		Example: "  hugebus topic unstick orders --publisher 3\n  hugebus topic unstick orders --pid 4711 --json",
		Args:    topicArg, ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			var o client.UnstickOptions
			if cmd.Flags().Changed("publisher") {
				if publisher < 0 {
					return usage(cmd, "--publisher: %d is not a slot; `hugebus topic show %s` lists them", publisher, args[0])
				}
				o.Publisher = &publisher
			}
			if cmd.Flags().Changed("pid") {
				if pid <= 0 || pid > math.MaxInt32 {
					return usage(cmd, "--pid: %d is not a process: give a number from 1 to %d", pid, math.MaxInt32)
				}
				o.PID = pid
			}
			return a.ask(cmd, func(ctx context.Context, c *client.Client) error { return a.unstick(ctx, c, args[0], o, asJSON) })
		},
	}
	cmd.Flags().IntVar(&publisher, "publisher", 0, "only the publisher in this slot")
	cmd.Flags().IntVar(&pid, "pid", 0, "only publishers of this process")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) unstick(ctx context.Context, c *client.Client, topic string, o client.UnstickOptions, asJSON bool) error {
	claims, err := c.Unstick(ctx, topic, o)
	if err != nil {
		return err
	}
	if asJSON {
		err = a.printJSON(claims)
	} else {
		err = a.print(unstuckLines(claims))
	}
	for _, u := range claims {
		if u.Outcome == client.UnstickWaiting {
			return errors.Join(err, errStillStuck)
		}
	}
	return err
}

// unstuckLines says what has become of each claim.
func unstuckLines(claims []client.UnstuckClaim) string {
	var b strings.Builder
	for _, u := range claims {
		fmt.Fprintf(&b, "publisher %d (%s, pid %d, uid %d), claim at %d, held for %v: %s\n", u.Slot, u.Name, u.PID, u.UID, u.Position,
			u.Age.Round(time.Millisecond), unstuckOutcome(u))
	}
	return b.String()
}

func unstuckOutcome(u client.UnstuckClaim) string {
	switch u.Outcome {
	case client.UnstickRevoked:
		return fmt.Sprintf("taken away, %d bytes are padding now", u.SkippedBytes)
	case client.UnstickEnded:
		return "it had ended before"
	}
	return u.Outcome + ": " + u.Remedy
}
