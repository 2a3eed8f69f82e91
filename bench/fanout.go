package main

import (
	"github.com/spf13/cobra"

	"github.com/hugebus/hugebus/bench/internal/workload"
)

func newFanout() *cobra.Command {
	return newFan(workload.ScenarioFanout, "Measure one publisher with 1 to 8 subscribers",
		"Fanout measures streams from one process to several, each of which reads everything.", false, []int{1}, []int{1, 2, 4, 8})
}
