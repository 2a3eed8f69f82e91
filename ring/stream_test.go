package ring

import "testing"

// heatAfter is the heat after polls that found so many frames each, with so many looks
// that found nothing before each.
func heatAfter(polls, frames, looks int) uint64 {
	var t stream
	for range polls {
		for range looks {
			t.cool()
		}
		t.polled(frames, CellSize, noWait)
	}
	return t.heat
}

func TestALoneFrameIsNotHeldUp(t *testing.T) {
	for _, looks := range []int{10, 100} {
		if h := heatAfter(1000, 1, looks); h >= heatStream {
			t.Errorf("a frame after each %d looks that found nothing makes a stream (heat %d)", looks, h)
		}
	}
}

func TestAStreamIsNoticedAndItsEndToo(t *testing.T) {
	var s stream
	for range 2 {
		s.polled(1, CellSize, noWait)
	}
	if !s.hot() {
		t.Fatalf("polls in a row that found a frame are no stream (heat %d)", s.heat)
	}
	s.polled(streamAhead, CellSize, paid)
	if !s.hot() {
		t.Fatal("a wait that brought a run of frames ended the stream")
	}
	s.polled(1, CellSize, vain)
	if s.hot() {
		t.Fatal("a wait in vain did not end the stream")
	}
}

// TestWaitsInVainBecomeRare: frames that look like a stream, and are none, are held up seldom, until a wait is worth it again.
func TestWaitsInVainBecomeRare(t *testing.T) {
	var s stream
	const frames = 100_000
	waits := 0
	for range frames {
		w := noWait
		if s.hot() {
			w = vain
			waits++
		}
		s.polled(1, CellSize, w)
	}
	if most := frames>>doubtMost + doubtMost; waits == 0 || waits > most {
		t.Errorf("%d of %d frames were waited for in vain, want at most %d", waits, frames, most)
	}
	s.polled(streamAhead, CellSize, paid)
	for !s.hot() {
		s.polled(1, CellSize, noWait)
	}
	s.polled(1, CellSize, vain)
	if s.hold != 2 {
		t.Errorf("held off for %d frames after a wait that was worth it and one that was not, want 2", s.hold)
	}
	s.doubt = 5
	for range 4 {
		s.polled(streamAhead, CellSize, unneeded)
	}
	if s.doubt != 1 {
		t.Errorf("doubt %d after four runs of frames that were there already, want 1", s.doubt)
	}
}

// TestPace: what a reader that finds a stream waits for, on rings of frames of every size.
func TestPace(t *testing.T) {
	for _, size := range []int{0, 48, 400, 1000} {
		for _, x := range []struct {
			published int // of the frames that there is an eighth of the capacity for, streamAhead at most, in percent
			want      wait
		}{{120, unneeded}, {90, paid}, {10, vain}} {
			r := heap(t, Config{Capacity: 1 << 18})
			p, s := publisher(t, r, 0), reliable(t, r, 0)
			for range 2 {
				must(t, p.TryPublish(make([]byte, size)))
				if got, err := poll(t, s, 1); len(got) != 1 || err != nil {
					t.Fatal(len(got), err)
				}
			}
			ahead := min(streamAhead, 1<<15/int(frameSize(uint64(size))))
			for range max(ahead*x.published/100, 1) {
				must(t, p.TryPublish(make([]byte, size)))
			}
			want := x.want
			limit, got := s.pace(1000)
			if (limit < 1000) != (want == unneeded) || got != want {
				t.Errorf("%d bytes, %d%% of %d frames: limit %d, wait %d, want %d", size, x.published, ahead, limit, got, want)
			}
		}
	}
}

// TestReadyCoolsAStream: who waits by Ready between polls, as package client does, is
// not held up by each frame that it waited for.
func TestReadyCoolsAStream(t *testing.T) {
	r := heap(t, small(0))
	p, s := publisher(t, r, 0), reliable(t, r, 0)
	for range 100 {
		for range 10 {
			if s.Ready() {
				t.Fatal("ready without a frame")
			}
		}
		must(t, p.TryPublish([]byte("ping")))
		if s.stream.hot() {
			t.Fatal("frames that were waited for make a stream")
		}
		if got, err := poll(t, s, 64); len(got) != 1 || err != nil {
			t.Fatalf("%d frames, %v", len(got), err)
		}
	}
}
