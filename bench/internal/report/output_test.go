package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sampleDocument has results of every kind.
func sampleDocument() *Document {
	times := NewHistogram()
	for i := range int64(2000) {
		times.Record(300 + i*i/10)
	}
	var trip Result
	trip.Latency([]*Histogram{times, times})
	trip.Scenario, trip.System, trip.Variant, trip.PayloadBytes = "latency", "hugebus", "shared", 48
	rival := trip
	rival.System, rival.Variant = "tcp", "Go <b>net</b>"
	raw := trip
	raw.Scenario, raw.System = "raw-rtt", "raw"
	stream := Result{Scenario: "throughput", System: "hugebus", PayloadBytes: 48, Batch: 16, Settings: &Settings{Cores: "0,1"}}
	stream.Throughput([]Rate{{Frames: 5_000_000, Nanoseconds: 1e8}})
	slow := Result{Scenario: "throughput", System: "tcp", PayloadBytes: 48, Batch: 1}
	slow.Throughput([]Rate{{Frames: 30_000, Nanoseconds: 1e8}})
	return &Document{
		Title: "a test", Command: "go run ./bench compare --html '<x>'", When: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Machine: []Fact{{"Processor", "of <some> kind"}}, Warnings: []string{"the load average is 9.00"},
		Sections: []Section{{Name: "compare", Results: []Result{trip, rival, stream, slow, raw}, Notes: []string{"redis: not measured"}}},
	}
}

// loads are attributes and rules by which a page fetches something.
var loads = regexp.MustCompile(`(?i)<script|<link[^>]+stylesheet|@import|(src|href|data|action)\s*=\s*["']?\s*(https?:|//|file:)|url\(\s*["']?\s*(https?:|//|file:)`)

func TestPageIsCompleteAndNeedsNothingElse(t *testing.T) {
	var page bytes.Buffer
	if err := sampleDocument().WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if found := loads.FindString(text); found != "" {
		t.Errorf("the page loads something: %s", found)
	}
	if n := strings.Count(text, "<svg"); n != 2 {
		t.Errorf("%d drawings, want curves and bars", n)
	}
	for _, want := range []string{
		"a test", "go run ./bench compare --html &#39;&lt;x&gt;&#39;", "of &lt;some&gt; kind", "the load average is 9.00",
		"redis: not measured", "Go &lt;b&gt;net&lt;/b&gt;", "99.9%", "2026-01-02 03:04:05 UTC", "50.0 M", "300 k", "raw cache line",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	if strings.Contains(text, "<b>net") {
		t.Error("a name is not escaped")
	}
}

// TestPageRendersInABrowser opens the page where there is a browser, and looks at what it complains about.
func TestPageRendersInABrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: that the page renders without complaints is not tested")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "report.html")
	if err := WriteFile(file, sampleDocument().WriteHTML); err != nil {
		t.Fatal(err)
	}
	dom, log, err := showPage(t, browser, file)
	if err != nil && !strings.Contains(dom, "</html>") { // with a page, how the browser ends is its own affair
		t.Skipf("chromium does not run here: %v: %.500s", err, log)
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "CONSOLE") {
			t.Errorf("the browser complains: %s", line)
		}
	}
	if n := strings.Count(dom, "<svg"); n != 2 {
		t.Errorf("the browser shows %d drawings, want 2", n)
	}
}

// showPage has a browser show a page, and returns what it made of it and what it said. Both go to files: processes that the browser has
// started may live, and hold a pipe, longer than it does.
func showPage(t *testing.T, browser, page string) (dom, log string, err error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb-browser")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+filepath.Join(dir, "profile"),
		"--enable-logging=stderr", "--dump-dom", "file://"+page)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it starts others, which end with it
	names := []string{filepath.Join(dir, "dom"), filepath.Join(dir, "log")}
	for i, to := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		f, err := os.Create(names[i])
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		*to = f
	}
	if err = cmd.Start(); err == nil {
		err = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // they may have ended
	}
	var said [2]string
	for i, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		said[i] = string(text)
	}
	for range 100 { // its children write a little longer
		if os.RemoveAll(dir) == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return said[0], said[1], err
}

func TestCSVHasALineForEachResultAndNamesOfTheJSON(t *testing.T) {
	var out bytes.Buffer
	if err := WriteCSV(&out, sampleDocument().Results()); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != 6 {
		t.Fatalf("%d lines, %v", len(rows), err)
	}
	column := func(name string) int {
		for i, n := range rows[0] {
			if n == name {
				return i
			}
		}
		t.Fatalf("no column %s in %v", name, rows[0])
		return 0
	}
	if rows[0][0] != "scenario" || rows[1][column("system")] != "hugebus" || rows[3][column("settings.cores")] != "0,1" || rows[1][column("settings.cores")] != "" {
		t.Errorf("%v", rows)
	}
	if got, err := strconv.ParseFloat(rows[3][column("frames_per_s")], 64); err != nil || got != 5e7 {
		t.Errorf("frames per second %v, %v", got, err)
	}
	if n, err := strconv.Atoi(rows[1][column("p50_ns")]); err != nil || n < 300 {
		t.Errorf("p50 %v, %v", n, err)
	}
}

func TestHGRMHasAFileForEachResultWithTimes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	names, err := WriteHGRMs(dir, sampleDocument().Results())
	if err != nil || len(names) != 3 {
		t.Fatalf("%v, %v", names, err)
	}
	if names[0] != "latency-hugebus-shared-48B.hgrm" || names[1] != "latency-tcp-Go-b-net-b-48B.hgrm" {
		t.Errorf("%v", names)
	}
	text, err := os.ReadFile(filepath.Join(dir, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if !strings.Contains(lines[0], "Value") || !strings.Contains(lines[0], "1/(1-Percentile)") || !strings.Contains(string(text), "#[Max") {
		t.Errorf("%.300s", text)
	}
	last := 0.0
	for _, line := range lines[2:] {
		fields := strings.Fields(line)
		if len(fields) != 4 || fields[0][0] == '#' {
			break
		}
		us, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || us < last || us < 0.3 || us > 401 {
			t.Errorf("line %q", line)
		}
		last = us
	}
}

func TestFailedFileLeavesTheOldOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, func(io.Writer) error { return os.ErrInvalid }); err == nil {
		t.Error("no error")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestLabelsOfAxes(t *testing.T) {
	for exponent, want := range map[float64]string{0: "1 ns", 2: "100 ns", 3: "1 µs", 5: "100 µs", 9: "1 s", 10: "10 s"} {
		if got := timeLabel(exponent); got != want {
			t.Errorf("10^%v ns: %q, want %q", exponent, got, want)
		}
	}
	for exponent, want := range map[float64]string{1: "10 ", 3: "1 k", 8: "100 M"} {
		if got := rateLabel(exponent); got != want {
			t.Errorf("10^%v: %q, want %q", exponent, got, want)
		}
	}
	var labels []string
	for _, tick := range percentTicks(5) {
		labels = append(labels, tick.Label)
	}
	if got := strings.Join(labels, " "); got != "0% 50% 90% 99% 99.9% 99.99% 99.999%" {
		t.Error(got)
	}
}
