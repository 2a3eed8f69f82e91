package main

import "github.com/spf13/cobra"

// commands make the subcommands, in the order of the help. Each has a file of its own.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newCompare(),
		newRate(),
		newLatency(),
		newThroughput(),
		newWakeup(),
		newFanout(),
		newFanin(),
		newGroup(),
		newPages(),
		newStart(),
		newGC(),
		newIngress(),
		newPush(),
		newRaw(),
		newAll(),
		newChaos(),
		newKill(),
		newRestart(),
		newWorker(),
		newChaosWorker(),
		newVictim(),
		newKeeper(),
		newServer(),
		newRestartWorker(),
	}
}
