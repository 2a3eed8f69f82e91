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
		t.polled(frames, CellSize, t.hot())
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
		s.polled(1, CellSize, false)
	}
	if !s.hot() {
		t.Fatalf("polls in a row that found a frame are no stream (heat %d)", s.heat)
	}
	s.polled(streamAhead, CellSize, true)
	if !s.hot() {
		t.Fatal("a wait that brought a run of frames ended the stream")
	}
	s.polled(1, CellSize, true)
	if s.hot() {
		t.Fatal("a wait that brought a single frame did not end the stream")
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
