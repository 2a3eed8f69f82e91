package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/internal/doctor"
)

// doctorPatience bounds the time that the doctor waits for the broker.
const doctorPatience = 5 * time.Second

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at this machine, and say what to type to make it better",
		Long: `Look at what hugebus needs of this machine, as this user: huge pages, limits, processors,
cgroups, the broker's socket. Each line is ok, a warning (it works, but slower or with a limit
that is easily met) or an error (it does not work), with what to type. It changes nothing.

Exit status 1 only if there is an error.`,
		Example: "  hugebus doctor\n  hugebus doctor --json | jq '.checks[] | select(.status != \"ok\")'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorPatience)
			defer cancel()
			r := doctor.Examine(ctx, a.socket)
			var err error
			if asJSON {
				err = a.printJSON(r)
			} else {
				err = a.print(doctorPage(r))
			}
			if err == nil && r.Status == doctor.Error {
				err = errReported
			}
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func doctorPage(r doctor.Report) string {
	label := map[doctor.Status]string{doctor.OK: "OK", doctor.Warning: "warning", doctor.Error: "ERROR"}
	var b strings.Builder
	count := map[doctor.Status]int{}
	for _, c := range r.Checks {
		count[c.Status]++
		fmt.Fprintf(&b, "%-8s %s: %s\n", label[c.Status], c.Name, c.Found)
		if c.Do != "" {
			fmt.Fprintf(&b, "         -> %s\n", c.Do)
		}
	}
	fmt.Fprintf(&b, "%d ok, %d warnings, %d errors\n", count[doctor.OK], count[doctor.Warning], count[doctor.Error])
	return b.String()
}
