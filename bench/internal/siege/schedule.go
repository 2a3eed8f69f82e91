package siege

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// What an Action does.
const (
	doStart = "start" // a process in a berth, armed with Arm
	doKill  = "kill"  // SIGKILL
	doTerm  = "term"  // SIGTERM
	doStop  = "stop"  // SIGSTOP
	doCont  = "cont"  // SIGCONT
)

// An Action is one thing that is done to one berth.
type Action struct {
	At  time.Duration `json:"at_ns"` // since the beginning
	Who string        `json:"who"`
	Do  string        `json:"do"`
	// Arm is what HUGEBUS_FAILPOINTS says in a process that is started.
	Arm string `json:"arm,omitempty"`
}

// A Schedule is the actions of a run, in their order.
type Schedule []Action

// Write writes one action a line.
func (s Schedule) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	for _, a := range s {
		if err := e.Encode(a); err != nil {
			return fmt.Errorf("siege: %w", err)
		}
	}
	return nil
}

// ReadSchedule reads what Write has written.
func ReadSchedule(r io.Reader) (Schedule, error) {
	var s Schedule
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		var a Action
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return nil, fmt.Errorf("siege: schedule, line %d: %w", n, err)
		}
		switch a.Do {
		case doStart, doKill, doTerm, doStop, doCont:
		default:
			return nil, fmt.Errorf("siege: schedule, line %d: cannot do %q", n, a.Do)
		}
		s = append(s, a)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("siege: schedule: %w", err)
	}
	return s, nil
}

// A calendar holds actions that are to come, the earliest first.
type calendar []Action

func (c calendar) Len() int           { return len(c) }
func (c calendar) Less(i, j int) bool { return c[i].At < c[j].At }
func (c calendar) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }

// Push and Pop are for container/heap.
func (c *calendar) Push(x any) { *c = append(*c, x.(Action)) }

// Pop removes the last one.
func (c *calendar) Pop() any {
	old := *c
	a := old[len(old)-1]
	*c = old[:len(old)-1]
	return a
}
