package sys

import (
	"os"
	"testing"
	"time"
)

func TestUsageCountsProcessorTimeAndFaults(t *testing.T) {
	before, err := ProcessUsage()
	if err != nil {
		t.Fatal(err)
	}
	// Until a tick of processor time has gone by, and some pages are touched for the first time.
	touched := 0
	var keep [][]byte
	for {
		page := make([]byte, 1<<20)
		for i := 0; i < len(page); i += os.Getpagesize() {
			page[i] = 1
			touched++
		}
		keep = append(keep, page)
		YieldThread()
		now, err := ProcessUsage()
		if err != nil {
			t.Fatal(err)
		}
		if len(keep) > 8 {
			keep = keep[:0]
		}
		if now.CPU-before.CPU > 5*time.Millisecond && now.Faults > before.Faults {
			return
		}
	}
}
