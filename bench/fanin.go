package main

import (
	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/workload"
)

func newFanin() *cobra.Command {
	return newFan(workload.ScenarioFanin, "Measure 1 to 8 publishers with one subscriber",
		"Fanin measures streams of several processes that publish on one topic, read by one.", false, []int{1, 2, 4, 8}, []int{1})
}
