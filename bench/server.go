package main

import (
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/server"
)

// newServer is the hidden command that this program starts itself with for systems that
// need a server.
func newServer() *cobra.Command {
	return &cobra.Command{
		Use:    server.Command + " KIND FOLDER",
		Short:  "The server of a system that is compared (started by bench itself)",
		Args:   cobra.ExactArgs(2),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			// An interrupt from the terminal comes to the parent too, which ends us.
			signal.Ignore(os.Interrupt)
			return server.Serve(cmd.Context(), args[0], args[1], os.Stdin, os.Stdout)
		},
	}
}
