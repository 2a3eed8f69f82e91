package shm_test

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/shm"
)

func window(t testing.TB, s *shm.Segment) *shm.Window {
	t.Helper()
	w, err := s.Window()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestWindowShowsTheSegment(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shm.Segment) {
		w := window(t, s)
		last := len(s.Bytes()) - 1
		w.Bytes()[last] = 5
		s.Bytes()[0] = 6
		if len(w.Bytes()) != last+1 || s.Bytes()[last] != 5 || w.Bytes()[0] != 6 {
			t.Error("the window shows other memory")
		}
	})
}

// TestFenceCutsAWriterOff: somebody stores all the time, and from the moment that Fence has returned nothing of it arrives.
func TestFenceCutsAWriterOff(t *testing.T) {
	eachKind(t, func(t *testing.T, s *shm.Segment) {
		for range 20 {
			fenceWhileWriting(t, s)
		}
	})
}

func fenceWhileWriting(t *testing.T, s *shm.Segment) {
	w := window(t, s)
	at := len(s.Bytes()) / 2
	var stop atomic.Bool
	var begun, all sync.WaitGroup
	begun.Add(2)
	for range 2 {
		all.Go(func() {
			for first := true; !stop.Load(); first = false {
				word(w.Bytes(), at).Add(1)
				word(w.Bytes(), at+64).Store(1)
				if first {
					begun.Done()
				}
			}
		})
	}
	begun.Wait()
	if err := w.Fence(int64(at), 72); err != nil {
		t.Fatal(err)
	}
	word(s.Bytes(), at).Store(77)
	word(s.Bytes(), at+64).Store(78)
	for seen := word(w.Bytes(), at).Load(); word(w.Bytes(), at).Load() < seen+1000; {
		// They go on, with memory of their own.
	}
	stop.Store(true)
	all.Wait()
	if a, b := word(s.Bytes(), at).Load(), word(s.Bytes(), at+64).Load(); a != 77 || b != 78 {
		t.Errorf("%d, %d arrived behind the fence", a, b)
	}
}

func TestFenceTakesNoMoreThanItsPages(t *testing.T) {
	s := create(t, shm.Options{Name: uniqueName(), Size: 16384, Pages: shm.Pages4KiB})
	w := window(t, s)
	for _, off := range []int{0, 4095, 4096, 8191, 8192, 16383} {
		w.Bytes()[off] = 9
	}
	if err := w.Fence(5000, 3192); err != nil {
		t.Fatal(err)
	}
	for off, want := range map[int]byte{0: 9, 4095: 9, 4096: 0, 8191: 0, 8192: 9, 16383: 9} {
		if got := w.Bytes()[off]; got != want {
			t.Errorf("the window has %d at %d, want %d", got, off, want)
		}
		if s.Bytes()[off] != 9 {
			t.Errorf("the segment has lost what was at %d", off)
		}
	}
	if err := w.Fence(100, 0); err != nil {
		t.Error(err)
	}
}

func TestWindowErrors(t *testing.T) {
	name := uniqueName()
	s := create(t, shm.Options{Name: name, Size: 8192, Pages: shm.Pages4KiB})
	w := window(t, s)
	for _, bad := range [][2]int64{{-1, 1}, {0, -1}, {8192, 1}, {0, 8193}, {1, 1<<63 - 1}, {1<<63 - 1, 1}} {
		if err := w.Fence(bad[0], bad[1]); !errors.Is(err, unix.EINVAL) {
			t.Errorf("fence %v: %v", bad, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Window(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("window of a closed segment: %v", err)
	}
	w.Bytes()[8191] = 1 // it outlives the segment
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if mapped(t, name) {
		t.Error("still mapped")
	}
	ro := create(t, shm.Options{Name: uniqueName(), Size: 8192, Pages: shm.Pages4KiB})
	if _, err := open(t, reopened(t, ro, false), false).Window(); !errors.Is(err, unix.EACCES) {
		t.Errorf("window of a read-only segment: %v", err)
	}
}
