package siege

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// How processes died, and what else was done to them.
const (
	diedAtPoint   = "killed_at_failpoint"
	diedAnywhere  = "killed"
	stopAtPoint   = "stopped_at_failpoint"
	stopAnywhere  = "stopped"
	endedInOrder  = "terminated"
	startsOfBerth = "started"
)

var columns = []string{startsOfBerth, diedAnywhere, diedAtPoint, endedInOrder, stopAnywhere, stopAtPoint}

// A Point says what happened at one failpoint.
type Point struct {
	Kills int `json:"kills"`
	Stops int `json:"stops"`
}

// A Result is what a run has done and found.
type Result struct {
	Seed       uint64           `json:"seed"`
	Seconds    float64          `json:"seconds"`
	Failpoints bool             `json:"failpoints"`
	Violation  string           `json:"violation,omitempty"`
	Dump       string           `json:"dump,omitempty"`
	Stalls     int              `json:"stalls"`  // how often the machine stood still for seconds, and nobody was blamed for waiting
	Kills      int              `json:"kills"`   // deaths by SIGKILL, wherever
	Revoked    int              `json:"revoked"` // publishers whose claim an operator has taken away
	Pushed     uint64           `json:"pushed"`  // frames that receivers of an egress got
	ByKind     ByKind           `json:"by_kind"`
	Points     map[string]Point `json:"points"`
	// Rare are the points at which fewer than Enough have died.
	Rare   []string      `json:"rare,omitempty"`
	Topics []TopicResult `json:"topics"`
	// Before and After are the descriptors and mappings of processes that lived all the time, and free huge pages.
	Before Held `json:"before"`
	After  Held `json:"after"`
}

// ByKind counts by kind of process and then by what was done.
type ByKind map[string]map[string]int

func (k ByKind) add(kind, what string) {
	if k[kind] == nil {
		k[kind] = map[string]int{}
	}
	k[kind][what]++
}

// A TopicResult says what was checked on one topic.
type TopicResult struct {
	Topic         string `json:"topic"`
	Frames        uint64 `json:"frames"`
	Bytes         uint64 `json:"bytes"`
	Publishers    int    `json:"publishers"`
	Compared      uint64 `json:"compared"`
	Gaps          uint64 `json:"gaps"`
	Missed        uint64 `json:"missed"`
	Evictions     uint64 `json:"evictions"`
	Redelivered   uint64 `json:"redelivered"`
	Repairs       uint64 `json:"repairs"`
	RepairedBytes uint64 `json:"repaired_bytes"`
}

// Held is what is compared before and after.
type Held struct {
	Descriptors   int `json:"descriptors"`
	Mappings      int `json:"mappings"`
	Slots         int `json:"slots"`
	FreeHugePages int `json:"free_huge_pages"`
}

// Write writes tables for people.
func (r *Result) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "process\t")
	for _, c := range columns {
		fmt.Fprintf(t, "%s\t", c)
	}
	fmt.Fprintln(t)
	for _, kind := range slices.Sorted(maps.Keys(r.ByKind)) {
		fmt.Fprintf(t, "%s\t", kind)
		for _, c := range columns {
			fmt.Fprintf(t, "%d\t", r.ByKind[kind][c])
		}
		fmt.Fprintln(t)
	}
	if len(r.Points) > 0 {
		fmt.Fprintln(t, "\t\t\t\t\t\t\nfailpoint\tkills\tstops\t")
	}
	for _, p := range slices.Sorted(maps.Keys(r.Points)) {
		fmt.Fprintf(t, "%s\t%d\t%d\t\n", p, r.Points[p].Kills, r.Points[p].Stops)
	}
	fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\ntopic\tframes\tpublishers\tcompared\tgaps\tmissed\tevictions\tredelivered\trepairs\trepaired bytes\t")
	for _, p := range r.Topics {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", p.Topic, p.Frames, p.Publishers, p.Compared, p.Gaps, p.Missed,
			p.Evictions, p.Redelivered, p.Repairs, p.RepairedBytes)
	}
	fmt.Fprintln(t, "\t\t\t\t\nheld\tdescriptors\tmappings\tslots\tfree huge pages\t")
	fmt.Fprintf(t, "before\t%d\t%d\t%d\t%d\t\n", r.Before.Descriptors, r.Before.Mappings, r.Before.Slots, r.Before.FreeHugePages)
	fmt.Fprintf(t, "after\t%d\t%d\t%d\t%d\t\n", r.After.Descriptors, r.After.Mappings, r.After.Slots, r.After.FreeHugePages)
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Points) > 0 {
		if _, err := fmt.Fprintf(w, "\n%s\n", r.coverage()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\nseed %d: %s, %d processes killed, %d claims revoked, %d frames pushed, %s\n", r.Seed, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second), r.Kills, r.Revoked, r.Pushed, r.verdict())
	return err
}

// coverage says at which points too few have died. In a short run that is no wonder.
func (r *Result) coverage() string {
	if len(r.Rare) == 0 {
		return fmt.Sprintf("each of %d failpoints: at least %d processes killed", len(r.Points), Enough)
	}
	var each []string
	for _, p := range r.Rare {
		each = append(each, fmt.Sprintf("%s %d", p, r.Points[p].Kills))
	}
	return fmt.Sprintf("fewer than %d processes killed at %d of %d failpoints: %s", Enough, len(r.Rare), len(r.Points), strings.Join(each, ", "))
}

func (r *Result) verdict() string {
	text := "no violation"
	if r.Stalls > 0 {
		text += fmt.Sprintf(" (the machine stood still %d times)", r.Stalls)
	}
	if !r.Failpoints {
		text += "; at random times only: this program has no failpoints, and there is no go tool to build one that has"
	}
	if r.Violation != "" {
		text = "VIOLATION: " + r.Violation + "\ndump: " + r.Dump + "\nagain: go run ./bench chaos --replay " + r.Dump
	}
	return text
}
