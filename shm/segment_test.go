package shm_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/hugebus/hugebus/shm"
)

// create makes a segment that is closed when the test ends.
func create(t testing.TB, o shm.Options) *shm.Segment {
	t.Helper()
	s, err := shm.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var nameCount atomic.Uint64

// uniqueName returns a name by which mapped finds the mapping of one test.
func uniqueName() string { return fmt.Sprintf("hugebus-test-%d-%d", os.Getpid(), nameCount.Add(1)) }

// mapped reports whether the kernel has a mapping of a memfd of this name in this process.
func mapped(t testing.TB, name string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(maps), "/memfd:"+name+" ")
}

func acquire(t testing.TB, s *shm.Segment) {
	t.Helper()
	if err := s.Acquire(); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryStaysMappedUntilTheLastRelease(t *testing.T) {
	name := uniqueName()
	s := create(t, shm.Options{Name: name, Size: 8192, Pages: shm.Pages4KiB})
	if !mapped(t, name) {
		t.Fatal("not mapped after Create")
	}
	acquire(t, s)
	acquire(t, s)
	s.Bytes()[8191] = 7
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Acquire(); err != os.ErrClosed {
		t.Errorf("Acquire after Close: %v", err)
	}
	s.Release()
	if !mapped(t, name) || s.Bytes()[8191] != 7 {
		t.Error("unmapped while it was acquired")
	}
	s.Release()
	if mapped(t, name) || s.Bytes() != nil {
		t.Error("still mapped after the last Release")
	}
	if s.Size() != 8192 {
		t.Errorf("size is %d afterwards", s.Size())
	}
}

func TestCloseUnmapsAtOnceWhenNobodyUsesTheMemory(t *testing.T) {
	name := uniqueName()
	s := create(t, shm.Options{Name: name, Size: 4096, Pages: shm.Pages4KiB})
	acquire(t, s)
	s.Release()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if mapped(t, name) || s.Bytes() != nil {
			t.Error("still mapped")
		}
	}
	if _, err := s.File().Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the descriptor is still open: %v", err)
	}
	if _, err := s.ReadOnlyFile(); err != os.ErrClosed {
		t.Errorf("ReadOnlyFile after Close: %v", err)
	}
}

func panics(f func()) (what any) {
	defer func() { what = recover() }()
	f()
	return nil
}

func TestReleaseWithoutAcquirePanics(t *testing.T) {
	const want = "shm: Release of a Segment without Acquire"
	name := uniqueName()
	s := create(t, shm.Options{Name: name, Size: 4096, Pages: shm.Pages4KiB})
	if got := panics(s.Release); got != want {
		t.Errorf("open: %v", got)
	}
	if !mapped(t, name) {
		t.Error("the owner's mapping was taken away")
	}
	acquire(t, s)
	s.Close()
	s.Release()
	if got := panics(s.Release); got != want {
		t.Errorf("closed: %v", got)
	}
}

// The life of a segment against a model: whatever the order of calls, it is mapped as long as it is open or used.
func TestSegmentLife(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := uniqueName()
		s, err := shm.Create(shm.Options{Name: name, Size: 4096, Pages: shm.Pages4KiB})
		if err != nil {
			rt.Fatal(err)
		}
		users, closed := 0, false
		rt.Repeat(map[string]func(*rapid.T){
			"Acquire": func(rt *rapid.T) {
				err := s.Acquire()
				if closed != (err == os.ErrClosed) || !closed && err != nil {
					rt.Fatalf("Acquire: %v, closed %v", err, closed)
				}
				if err == nil {
					users++
				}
			},
			"Release": func(rt *rapid.T) {
				if got := panics(s.Release); (got != nil) != (users == 0) {
					rt.Fatalf("Release with %d users: %v", users, got)
				}
				users = max(0, users-1)
			},
			"Close": func(rt *rapid.T) {
				// Rarely, or hardly any run would have users.
				if rapid.IntRange(0, 4).Draw(rt, "close") != 0 {
					return
				}
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				closed = true
			},
			"": func(rt *rapid.T) {
				want := !closed || users > 0
				if got := mapped(t, name); got != want || (s.Bytes() != nil) != want {
					rt.Fatalf("mapped %v, closed %v, %d users", got, closed, users)
				}
			},
		})
		for ; users > 0; users-- {
			s.Release()
		}
		if err := s.Close(); err != nil {
			rt.Fatal(err)
		}
	})
}

// Readers in the same process while another goroutine closes: an unmapping too early would be a fault.
func TestCloseWhileGoroutinesRead(t *testing.T) {
	for range 50 {
		name := uniqueName()
		s := create(t, shm.Options{Name: name, Size: 64 << 10, Pages: shm.Pages4KiB})
		var started, ended sync.WaitGroup
		started.Add(4)
		for range 4 {
			ended.Go(func() {
				var once sync.Once
				for s.Acquire() == nil {
					once.Do(started.Done)
					for _, b := range s.Bytes() {
						if b != 0 {
							t.Errorf("read %d", b)
						}
					}
					s.Release()
				}
			})
		}
		started.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		ended.Wait()
		if mapped(t, name) {
			t.Fatal("still mapped after the last reader")
		}
	}
}

func TestConcurrentCloseUnmapsOnce(t *testing.T) {
	for range 50 {
		name := uniqueName()
		s := create(t, shm.Options{Name: name, Size: 4096, Pages: shm.Pages4KiB})
		acquire(t, s)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(s.Release)
		wg.Wait()
		if mapped(t, name) {
			t.Fatal("still mapped")
		}
	}
}
