package main

import (
	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/workload"
)

func newGroup() *cobra.Command {
	return newFan(workload.ScenarioGroup, "Measure 4 publishers with a group of 4 workers",
		"Group measures streams of several processes that publish on one topic, read by the members\nof one group: each frame goes to one of them.", true, []int{1, 4}, []int{1, 4})
}
