package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/bench/internal/deaths"
	"github.com/hugebus/hugebus/bench/internal/siege"
	"github.com/hugebus/hugebus/internal/testutil"
)

// TestChaos is a short run with failpoints: whatever dies, nothing is lost.
func TestChaos(t *testing.T) {
	program := testutil.BuildTagged(t, "github.com/hugebus/hugebus/bench", "failpoint")
	t.Run("no violation", func(t *testing.T) {
		dump := t.TempDir()
		p := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{"chaos", "--duration", "4s", "--json", "--dump", dump}})
		state := p.Wait()
		var r siege.Result
		if err := json.Unmarshal([]byte(p.Stdout()), &r); err != nil || !state.Success() {
			t.Fatalf("%v, %v\n%s\n%s", state, err, p.Stderr(), p.Stdout())
		}
		if r.Violation != "" || !r.Failpoints || r.Kills == 0 || len(r.Topics) == 0 || r.After.Descriptors > r.Before.Descriptors ||
			r.After.Mappings != r.Before.Mappings || r.After.Slots != r.Before.Slots {
			t.Errorf("%+v", r)
		}
		for _, topic := range r.Topics {
			if topic.Frames == 0 || topic.Compared == 0 {
				t.Errorf("%+v", topic)
			}
		}
		left, err := os.ReadDir(dump)
		if err != nil || len(left) != 0 {
			t.Errorf("a dump without a violation: %v, %v", left, err)
		}
	})
	t.Run("kill", func(t *testing.T) { killMeasures(t, program) })
	t.Run("a violation leaves a dump that can be run again", func(t *testing.T) { chaosFails(t, program) })
}

// killMeasures kills two publishers at each point.
func killMeasures(t *testing.T, program string) {
	n := len(deaths.Points)
	p := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{"kill", "--kills", strconv.Itoa(2 * n), "--json"}})
	p.Succeed()
	var results []deaths.Result
	if err := json.Unmarshal([]byte(p.Stdout()), &results); err != nil || len(results) != n+1 {
		t.Fatalf("%v in %s", err, p.Stdout())
	}
	for i, point := range append(slices.Clone(deaths.Points), "all") {
		r := results[i]
		if r.Point != point || r.Kills < 2 || r.HeldUp > 0 && (r.Median <= 0 || r.Worst < r.Median) {
			t.Errorf("%+v", r)
		}
	}
	// Two of them have nothing open, and one more has only sleepers whom nobody has woken.
	if all := results[n]; all.Kills != 2*n || all.Repairs != uint64(2*(n-3)) || all.HeldUp < int(all.Repairs) {
		t.Errorf("%+v", all)
	}
}

// chaosFails makes one fail: nobody can be as fast as this watchdog wants.
func chaosFails(t *testing.T, program string) {
	dump := t.TempDir()
	first := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{
		"chaos", "--duration", "30s", "--seed", "7", "--watchdog", "200ms", "--dump", dump,
	}})
	if s := first.Wait(); s.ExitCode() != 1 || !strings.Contains(first.Stderr(), "seed 7: violation") {
		t.Fatalf("%v\n%s\n%s", s, first.Stderr(), first.Stdout())
	}
	dirs, err := filepath.Glob(filepath.Join(dump, "chaos-seed7-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("dumps: %v, %v", dirs, err)
	}
	for _, name := range []string{"violation.txt", "settings.json", "schedule.jsonl", "broker.log", "ledger-shared.txt", "shared-anchor.log"} {
		if _, err := os.Stat(filepath.Join(dirs[0], name)); err != nil {
			t.Error(err)
		}
	}
	again := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{
		"chaos", "--replay", dirs[0], "--watchdog", "200ms", "--dump", dump,
	}})
	if s := again.Wait(); s.ExitCode() != 1 || !strings.Contains(again.Stderr(), "seed 7") {
		t.Errorf("%v\n%s", s, again.Stderr())
	}
}

func TestChaosRefusals(t *testing.T) {
	for args, want := range map[string]string{
		"chaos --duration 0s":               "--duration 0s",
		"chaos --watchdog -1s":              "--watchdog -1s",
		"chaos --replay /nowhere":           "/nowhere is not a dump",
		"chaos --replay /nowhere --seed 1":  "leave --seed and --duration out",
		"kill --kills 0":                    "--kills 0",
		"chaos now":                         "unknown command",
		"chaos --replay /x --duration 1s x": "unknown command",
	} {
		root := newRoot()
		root.SetArgs(strings.Split(args, " "))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}
