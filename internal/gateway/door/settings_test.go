package door

import (
	"fmt"
	"testing"
	"time"
)

func TestSettingsThatCannotBe(t *testing.T) {
	last := lastCPU()
	if last < 0 {
		t.Fatalf("the last processor is %d", last)
	}
	for want, s := range map[string]Settings{
		"--recv-buffer is 4294967296: give at most 2147483647, or 0 for the kernel's choice":       {RecvBuffer: 4 << 30},
		"--send-buffer is 107374182400: give at most 2147483647, or 0 for the kernel's choice":     {SendBuffer: 100 << 30},
		"--backlog is 4294967297: give at most 2147483647, or 0 for the kernel's choice":           {Backlog: 1<<32 + 1},
		"--fast-open is 4294967297: give at most 2147483647, or 0 for the kernel's choice":         {FastOpen: 1<<32 + 1},
		"--backlog is -1: give a positive number, or 0 for the kernel's choice":                    {Backlog: -1},
		"--busy-poll is -1s: give a positive duration, or 0 for the kernel's choice":               {BusyPoll: -time.Second},
		"--busy-poll is 1h0m0s: give at most 35m47.483647s, or 0 for the kernel's choice":          {BusyPoll: time.Hour},
		"--busy-poll is 1ns: give at least 1µs, or 0 for the kernel's choice":                      {BusyPoll: 1},
		fmt.Sprintf("--incoming-cpu is %d: the processors of this host are 0 to %d", last+1, last): {IncomingCPU: last + 2},
		"--incoming-cpu is -5: give the number of a processor, from 0 on":                          {IncomingCPU: -4},
	} {
		if err := s.Check(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v; want %s", s, err, want)
		}
	}
	for _, s := range []Settings{{}, {RecvBuffer: 1<<31 - 1, Backlog: 1<<31 - 1, BusyPoll: time.Microsecond}, {IncomingCPU: 1}, {IncomingCPU: last + 1}} {
		if err := s.Check(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
