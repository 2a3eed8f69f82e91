package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

// compareTests are those of compare, over the program that was built once.
func compareTests(t *testing.T, program string) {
	t.Run("all systems", func(t *testing.T) { smokeCompare(t, program) })
	t.Run("files", func(t *testing.T) { smokeFiles(t, program) })
}

// smokeCompare runs every system that is here, and looks for those that are not in the notes.
func smokeCompare(t *testing.T, program string) {
	p := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{
		"compare", "--count", "100", "--rounds", "1", "--size", "48", "--batch", "1", "--raw-duration", "1ms",
	}})
	p.Succeed()
	for _, system := range compared {
		if !regexp.MustCompile(`latency +`+regexp.QuoteMeta(system)+` `).MatchString(p.Stdout()) && !strings.Contains(p.Stdout(), system+": not measured: ") {
			t.Errorf("%s is neither measured nor named as absent:\n%s", system, p.Stdout())
		}
	}
	if !strings.Contains(p.Stdout(), "shmipc-go: not measured") {
		t.Errorf("shmipc-go is not named:\n%s", p.Stdout())
	}
}

func smokeFiles(t *testing.T, program string) {
	dir := t.TempDir()
	html, csv, hgrm := filepath.Join(dir, "r.html"), filepath.Join(dir, "r.csv"), filepath.Join(dir, "h")
	p := testutil.Launch(t, testutil.Child{Binary: program, Args: []string{
		"compare", "--systems", "hugebus,go-channel,unix", "--count", "300", "--rounds", "2", "--size", "48", "--batch", "1,16",
		"--raw-duration", "5ms", "--json", "--html", html, "--csv", csv, "--hgrm", hgrm,
	}})
	p.Succeed()
	var results []object
	if err := json.Unmarshal([]byte(p.Stdout()), &results); err != nil {
		t.Fatalf("%v in %s", err, p.Stdout())
	}
	var seen []string
	for _, o := range results {
		scenario, system := o["scenario"].(string), o["system"].(string)
		seen = append(seen, scenario+" "+system)
		o.number(t, "raw_rtt_p50_ns")
		switch {
		case system == "raw":
		case scenario == "latency":
			o.number(t, "p50_ns")
		default:
			o.number(t, "frames_per_s")
		}
		if system != "raw" && o["frames"] != 600.0 {
			t.Errorf("%s %s: %v frames were checked, want 600", scenario, system, o["frames"])
		}
	}
	for _, want := range []string{
		"latency hugebus", "latency go-channel", "latency unix", "throughput hugebus", "throughput go-channel", "throughput unix", "raw-rtt raw", "raw-transfer raw",
	} {
		if !slices.Contains(seen, want) {
			t.Errorf("%s is not among %v", want, seen)
		}
	}
	page, err := os.ReadFile(html)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "go run ./bench compare --systems hugebus,go-channel,unix", "Kernel"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	if lines, err := os.ReadFile(csv); err != nil || strings.Count(string(lines), "\n") != len(results)+1 {
		t.Errorf("csv: %v\n%s", err, lines)
	}
	// Those of hugebus twice, by how it waits, of the channel, the socket and the raw line.
	if files, err := filepath.Glob(filepath.Join(hgrm, "*.hgrm")); err != nil || len(files) != 5 {
		t.Errorf("hgrm: %v, %v", files, err)
	}
}

func TestWrongFlagsOfOutputAreRefusedBeforeAnythingIsMeasured(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"compare", "--systems", "pigeon"}, `--systems "pigeon": use some of hugebus, go-channel, pipe`},
		{[]string{"latency", "--html", filepath.Join(dir, "no", "r.html")}, "make it first"},
		{[]string{"raw", "--csv", dir}, "is a folder: name a file"},
	} {
		root := newRoot()
		root.SetArgs(c.args)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s", c.args, err, c.want)
		}
	}
}

func TestCommandLineIsQuotedForAShell(t *testing.T) {
	got := commandLine([]string{"compare", "--html", "my report.html", "it's", ""})
	if want := `go run ./bench compare --html 'my report.html' 'it'\''s' ''`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCompareCapacity(t *testing.T) {
	for size, want := range map[int64]int64{8: 1 << 20, 64 << 10: 1 << 20, 64<<10 + 1: 2 << 20, 1 << 20: 16 << 20, 16<<20 - ring.HeaderSize: 64 << 20} {
		if got := compareCapacity(size); got != want || int64(ring.MaxPayload(uint64(got))) < size {
			t.Errorf("payloads of %d bytes: %d, want %d", size, got, want)
		}
	}
}
