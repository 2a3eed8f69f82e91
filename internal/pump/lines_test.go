package pump

import (
	"context"
	"errors"
	"io"
	"math/rand"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestEachLineIsAFrame(t *testing.T) {
	for text, want := range map[string][]string{
		"":                   nil,
		"a\nb\n":             {"a", "b"},
		"\n\na\n\n":          {"", "", "a", ""},
		"last without":       {"last without"},
		"cr\r\nutf é\x00\n":  {"cr\r", "utf é\x00"},
		"x\n" + long(99_999): {"x", long(99_999)},
	} {
		for name, r := range map[string]io.Reader{
			"at once":       strings.NewReader(text),
			"byte by byte":  iotest.OneByteReader(strings.NewReader(text)),
			"with the end":  iotest.DataErrReader(strings.NewReader(text)),
			"half as asked": iotest.HalfReader(strings.NewReader(text)),
		} {
			p := newTopic(100_000)
			totals, err := Lines(t.Context(), t.Context(), r, p)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			equal(t, p.frames, want)
			if int(totals.Frames) != len(want) || int(totals.Bytes) != len(strings.Join(want, "")) || totals.Left != 0 {
				t.Errorf("%s: totals %+v for %d frames", name, totals, len(want))
			}
		}
	}
}

func long(n int) string { return strings.Repeat("y", n) }

func TestRandomLinesSurviveRandomReads(t *testing.T) {
	rng := rand.New(rand.NewSource(testutil.Seed(t)))
	var want []string
	for range 500 {
		n := rng.Intn(50)
		if rng.Intn(50) == 0 {
			n = rng.Intn(2 << 20)
		}
		want = append(want, long(n))
	}
	r, w := io.Pipe()
	go func() {
		text := strings.Join(want, "\n") + "\n"
		for len(text) > 0 {
			n := min(len(text), 1+rng.Intn(600<<10))
			if _, err := io.WriteString(w, text[:n]); err != nil {
				return
			}
			text = text[n:]
		}
		_ = w.Close()
	}()
	p := newTopic(2 << 20)
	if _, err := Lines(t.Context(), t.Context(), r, p); err != nil {
		t.Fatal(err)
	}
	equal(t, p.frames, want)
}

func TestALoneLineIsPublishedAtOnceAndMoreTogether(t *testing.T) {
	r, w := io.Pipe()
	p := newTopic(100)
	p.got = make(chan int)
	done := make(chan error)
	go func() {
		_, err := Lines(t.Context(), t.Context(), r, p)
		done <- err
	}()
	for text, want := range map[string]int{"lone\n": 1, "a\nb\nc\n": 3} {
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if n := <-p.got; n != want {
			t.Errorf("%q: a batch of %d", text, n)
		}
	}
	_ = w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestALineThatIsTooLongIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\n" + long(17) + "\nc\n":                "line 3 has 17 bytes, above the topic's maximum of 16: split it, or create the topic with --capacity 4KiB",
		"a\nb\n" + long(17):                          "line 3 has more than 16 bytes, above the topic's maximum of 16",
		strings.Repeat("\n", 3000) + long(20) + "\n": "line 3001 has 20 bytes",
	} {
		p := newTopic(16)
		totals, err := Lines(t.Context(), t.Context(), strings.NewReader(text), p)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if before := strings.Count(text[:strings.Index(text, "y")], "\n"); int(totals.Frames) != before || len(p.frames) != before {
			t.Errorf("%d frames of the %d lines before it: %+v", len(p.frames), before, totals)
		}
	}
}

func TestStopEndsABlockedReadAndKeepsWhatWasRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	p := newTopic(100)
	p.got = make(chan int, 1)
	stop, cancel := context.WithCancel(t.Context())
	type result struct {
		totals Totals
		err    error
	}
	done := make(chan result)
	go func() {
		totals, err := Lines(stop, t.Context(), r, p)
		done <- result{totals, err}
	}()
	if _, err := io.WriteString(w, "whole\ntorn"); err != nil {
		t.Fatal(err)
	}
	<-p.got
	cancel()
	got := <-done
	if got.err != nil || got.totals.Left != 4 || got.totals.Frames != 1 {
		t.Errorf("totals %+v, %v", got.totals, got.err)
	}
	equal(t, p.frames, []string{"whole"})
}

func TestAbortGivesUpWaitingForRoom(t *testing.T) {
	p := newTopic(100)
	p.room = 2
	abort, cancel := context.WithCancelCause(t.Context())
	cancel(errFull)
	totals, err := Lines(t.Context(), abort, strings.NewReader("a\nb\nc\nd\n"), p)
	if !errors.Is(err, errFull) || totals.Frames != 2 || totals.GivenUp != 2 {
		t.Errorf("totals %+v, %v", totals, err)
	}
}

func TestAReadErrorNamesTheLine(t *testing.T) {
	r := io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("disk on fire")))
	_, err := Lines(t.Context(), t.Context(), r, newTopic(100))
	if err == nil || err.Error() != "read line 2: disk on fire" {
		t.Errorf("error %v", err)
	}
}
