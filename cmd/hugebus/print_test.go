package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/demo"
)

func contains(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestTopicPageShowsWhatIsWrong(t *testing.T) {
	info := client.TopicInfo{
		Name: "ticks", Capacity: 1 << 20, Pages: "2MiB", PageSize: 2 << 20, Exclusive: true, Locked: true,
		Repairs: 2, RepairedBytes: 640, StuckClaims: 1, RevokedClaims: 2, DeadLetters: 3, Violations: 1, Expulsions: 2,
		Publishers: []client.AttachmentInfo{{Slot: 0, Name: "feed", UID: 7, PID: 8, ClaimedBytes: 128, Position: 6400, StuckFor: 3 * time.Second, Stage: "claim"}, {Slot: 1, Name: "idle"}},
		Subscribers: []client.AttachmentInfo{
			{Slot: 1, Name: "slow", Policy: "lossy", Gaps: 4, GapBytes: 1024, LagBytes: 64},
			{Slot: 2, Name: "late", Policy: "evict", Evicted: true},
			{Slot: 3, Name: "new", Policy: "reliable", Joining: true},
			{Slot: 4, Name: "odd", Policy: "reliable", Expelled: "ahead of tail"},
		},
		Groups: []client.GroupInfo{{Name: "gone", Closes: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), UnfinishedRanges: 2}},
	}
	contains(t, topicPage(info), "ticks (one publisher at a time)", "2MiB (2MiB each, locked)", "2 (640 bytes skipped)", "dead letters",
		"1 impossible values were seen, 2 subscribers expelled", "CLAIM", "128 bytes at 6400, stuck for 3s (claim)", "1: see CLAIM below, and `hugebus topic unstick ticks`", "revoked claims", "GAPS", "4 (1024 bytes)", "0 (0 bytes), evicted", "0 (0 bytes), expelled: ahead of tail", "reliable (joining)",
		"group gone: position 0, 0 bytes behind, 2 ranges left unfinished, 0 redelivered, no members, closes 2026-01-02T03:04:05Z")
}

func TestTablesHaveColumns(t *testing.T) {
	got := table([]string{row("NAME", "N"), row("a long one", 5), row("", 12)})
	if want := "NAME        N\na long one  5\n-           12\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDemoPageShowsWhatIsWrong(t *testing.T) {
	r := demo.Result{
		Group: demo.Arrival{Once: 5, Lost: 6, Duplicated: 7, Corrupted: 8, Redelivered: 9, Shares: []uint64{1000, 2000}}, Broadcast: demo.Arrival{Disordered: 10},
		Died: []string{"worker 1 (pid 5) ended in the middle: signal: killed"}, Syscalls: demo.Syscalls{Counted: "nothing: …"},
	}
	page := demoPage(r)
	contains(t, page, "(1,000 + 2,000)", "5               6     7           8          0             9", "worker 1 (pid 5) ended", "not known (counted: nothing: …)")
	if strings.Contains(page, "every frame arrived") {
		t.Error("it praises a run that was wrong")
	}
	r.OK, r.Syscalls.Frames, r.Syscalls.Calls, r.Syscalls.PerFrame = true, 1000, 12, 0.012
	contains(t, demoPage(r), "every frame arrived exactly where it should", "0.0120 (12 in 1,000 frames")
}

func TestProgressBar(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	none := (&app{streams: streams{err: f}}).newBar() // a file is no terminal
	none.show(5, 10)
	none.clear()
	if text, err := os.ReadFile(f.Name()); err != nil || len(text) != 0 {
		t.Errorf("without a terminal: %q, %v", text, err)
	}
	b := bar{a: &app{streams: streams{err: f}}, began: time.Now()}
	b.show(250, 1000)
	b.show(1000, 1000)
	b.clear()
	b.clear()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(text), "\r[##########..............................]  25%  250 of 1,000 frames", "] 100%  1,000 of 1,000 frames")
	lines := strings.Split(string(text), "\r")
	if last := lines[len(lines)-2]; strings.TrimSpace(last) != "" || len(last) < 60 || lines[len(lines)-1] != "" {
		t.Errorf("it is not taken away: %q", lines)
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	err := fmt.Errorf("client: %w", errors.Join(errors.New("one"), fmt.Errorf("demo: client: %w", errors.New("two"))))
	if got := oneLine(err); got != "one; demo: two" {
		t.Errorf("got %q", got)
	}
}

// TestNotesHaveAColumnWhereThereAreSome looks at the table of subscribers.
func TestNotesHaveAColumnWhereThereAreSome(t *testing.T) {
	quiet, noted := client.AttachmentInfo{Name: "reader", Policy: "reliable"}, client.AttachmentInfo{Name: "egress", Policy: "reliable", Note: "slow: 192.0.2.7:50312"}
	if text := table(attachmentRows([]client.AttachmentInfo{quiet})); strings.Contains(text, "NOTE") {
		t.Errorf("nobody has a note: %s", text)
	}
	lines := strings.Split(table(attachmentRows([]client.AttachmentInfo{quiet, noted})), "\n")
	if !strings.HasSuffix(strings.TrimSpace(lines[0]), "NOTE") || strings.Contains(lines[1], "slow") || !strings.HasSuffix(strings.TrimSpace(lines[2]), "slow: 192.0.2.7:50312") {
		t.Errorf("%q", lines)
	}
}
