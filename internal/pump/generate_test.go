package pump

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestGenerateNumbersItsFrames(t *testing.T) {
	for size, want := range map[int][]string{
		0: {"", ""}, 1: {"1", "2"}, 8: {"1.......", "2......."},
	} {
		p := newTopic(100)
		totals, err := Generate(t.Context(), t.Context(), p, Frames{Size: size, Count: 2})
		if err != nil || totals.Frames != 2 || totals.Bytes != uint64(2*size) {
			t.Errorf("size %d: %+v, %v", size, totals, err)
		}
		equal(t, p.frames, want)
	}
	p := newTopic(100)
	if _, err := Generate(t.Context(), t.Context(), p, Frames{Size: 2, Count: 1234}); err != nil {
		t.Fatal(err)
	}
	if len(p.frames) != 1234 || p.frames[1233] != "34" || p.frames[0] != "1." {
		t.Errorf("%d frames, first %q, last %q", len(p.frames), p.frames[0], p.frames[len(p.frames)-1])
	}
}

func TestGenerateRefusesWhatCannotBe(t *testing.T) {
	for want, f := range map[string]Frames{
		"size -1 is negative":                             {Size: -1},
		"size 101 is above the topic's maximum of 100":    {Size: 101},
		"create the topic with --capacity 4KiB":           {Size: 101},
		"no topic is large enough":                        {Size: math.MaxInt32 * 4},
		"rate -2 is not a number of frames a second":      {Rate: -2},
		"rate NaN is not a number of frames a second; 0 ": {Rate: math.NaN()},
	} {
		_, err := Generate(t.Context(), t.Context(), newTopic(100), f)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", f, err, want)
		}
	}
}

func TestGenerateGoesOnUntilStop(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	p := newTopic(100)
	p.got = make(chan int)
	done := make(chan error)
	go func() {
		_, err := Generate(stop, t.Context(), p, Frames{Size: 5})
		done <- err
	}()
	<-p.got
	cancel()
	for ended := false; !ended; {
		select {
		case <-p.got:
		case err := <-done:
			ended = true
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func TestGenerateThatSleepsCanBeStopped(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	p := newTopic(100)
	p.got = make(chan int)
	done := make(chan error)
	go func() {
		_, err := Generate(stop, t.Context(), p, Frames{Size: 5, Rate: 1e-9})
		done <- err
	}()
	if n := <-p.got; n != 1 {
		t.Errorf("%d frames at once, with 31 years to the next", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestGenerateGivesUp(t *testing.T) {
	p := newTopic(100)
	p.room = 10
	abort, cancel := context.WithCancelCause(t.Context())
	cancel(errFull)
	totals, err := Generate(t.Context(), abort, p, Frames{Size: 5, Count: 100})
	if !errors.Is(err, errFull) || totals.Frames != 10 || totals.GivenUp != 54 {
		t.Errorf("%+v, %v", totals, err)
	}
}

// The schedule is a pure function of the time, so it needs no clock to test.
func TestScheduleIsOpenLoop(t *testing.T) {
	f := Frames{Rate: 1000, Count: 5000}
	for _, c := range []struct {
		elapsed time.Duration
		made    uint64
		want    int
	}{
		{0, 0, 1},
		{500 * time.Microsecond, 1, 0},
		{time.Millisecond, 1, 1},
		{10 * time.Millisecond, 1, 10},
		{time.Second, 900, 64}, // late: the batch's limit, then the next at once
		{time.Hour, 4990, 10},  // no more than asked for
	} {
		if got := f.due(c.elapsed, c.made, 64); got != c.want {
			t.Errorf("after %v with %d made: %d due, want %d", c.elapsed, c.made, got, c.want)
		}
	}
	if at := f.at(500); at != 500*time.Millisecond {
		t.Errorf("frame 500 at %v", at)
	}
}

func TestTotalsReadWell(t *testing.T) {
	got := Totals{Frames: 1000, Bytes: 2_000_000, Took: 500 * time.Millisecond}.String()
	if want := "1000 frames, 2000000 bytes in 500ms (2000 frames/s, 4.0 MB/s)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (Totals{}).String(); got != "0 frames, 0 bytes in 0s" {
		t.Errorf("got %q", got)
	}
}
