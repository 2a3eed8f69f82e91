package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A place is where entries are kept for one test. open is what a broker does at its start; the one before has closed its
// store.
type place struct {
	keeps   bool // what is put is there later
	open    func(t testing.TB) Store
	systemd *fakeSystemd // for the one that has it
}

var places = map[string]func(t testing.TB) place{
	"none": func(testing.TB) place { return place{open: func(testing.TB) Store { return None() }} },
	"process": func(t testing.TB) place {
		o := options(t, newSocket(t))
		return place{keeps: true, open: func(t testing.TB) Store { return start(t, o) }}
	},
	"served here": func(t testing.TB) place {
		o := serveHere(t, ServeOptions{})
		return place{keeps: true, open: func(t testing.TB) Store { return start2(t, o) }}
	},
	"systemd": func(t testing.TB) place {
		m := newFakeSystemd(t, newSocket(t), 6100)
		return place{keeps: true, open: func(t testing.TB) Store { return m.open(t) }, systemd: m}
	},
}

// serveHere runs a keeper as a goroutine of this process, where the race detector sees it.
func serveHere(t testing.TB, o ServeOptions) Options {
	t.Helper()
	o.Socket = newSocket(t)
	ready := make(chan struct{})
	o.Ready = func() { close(ready) }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("keeper: %v", err)
		}
		for _, path := range []string{o.Socket, o.Socket + lockSuffix} {
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the keeper left %s behind: %v", path, err)
			}
		}
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	return Options{Socket: o.Socket, Exec: []string{"/nonexistent"}}
}

// start2 is start for a keeper that is not a process of its own.
func start2(t testing.TB, o Options) *remote {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*remote)
}

// everywhere runs a test for every kind of store.
func everywhere(t *testing.T, test func(t *testing.T, p place)) {
	for name, make := range places {
		t.Run(name, func(t *testing.T) { test(t, make(t)) })
	}
}

func mustPut(t testing.TB, s Store, key, data string, files ...*os.File) {
	t.Helper()
	if err := s.Put(t.Context(), key, []byte(data), files); err != nil {
		t.Fatal(err)
	}
}

// expect compares a store with a state; one that keeps nothing has nothing.
func (p place) expect(t testing.TB, s Store, want state) {
	t.Helper()
	if !p.keeps {
		want = state{}
	}
	if got := load(t, s); got.String() != want.String() && !equal(got, want) {
		t.Fatalf("store has\n%v, want\n%v", got, want)
	}
}

func equal(a, b state) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func TestEntriesOutliveTheirStore(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		mustPut(t, s, "b", "bytes of b", textFiles(t, "b0", "b1")...)
		mustPut(t, s, "a", "")
		mustPut(t, s, "c/ d", "no files")
		want := state{}.with("a", "").with("b", "bytes of b", "b0", "b1").with("c/ d", "no files")
		p.expect(t, s, want)
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = p.open(t)
			p.expect(t, s, want)
		}
	})
}

func TestEntriesComeInTheOrderOfTheirKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		keys := []string{"b", "a", "a.", "B", "~", " ", "a/1"}
		for _, key := range keys {
			mustPut(t, s, key, key)
		}
		entries, err := s.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(keys)
		var got []string
		for _, e := range entries {
			got = append(got, e.Key)
		}
		if p.keeps && !slices.Equal(got, keys) {
			t.Errorf("%q, want %q", got, keys)
		}
	})
}

func TestPutReplaces(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		f := textFiles(t, "0", "1", "2")
		mustPut(t, s, "k", "first", f[0], f[1])
		mustPut(t, s, "k", "second", f[2])
		p.expect(t, s, state{}.with("k", "second", "2"))
		mustPut(t, s, "k", "third", f[1], f[2], f[0])
		p.expect(t, s, state{}.with("k", "third", "1", "2", "0"))
		mustPut(t, s, "k", "the same files", f[1], f[2], f[0])
		p.expect(t, s, state{}.with("k", "the same files", "1", "2", "0"))
		mustPut(t, s, "k", "none")
		s.Close()
		p.expect(t, p.open(t), state{}.with("k", "none"))
	})
}

func TestUpdateLeavesDescriptors(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		err := s.Update(t.Context(), "k", nil)
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("no entry yet: %v", err)
		}
		mustPut(t, s, "k", "old", textFiles(t, "0", "1")...)
		for _, data := range []string{"new", "", "newest"} {
			if err := s.Update(t.Context(), "k", []byte(data)); err != nil {
				t.Fatal(err)
			}
			p.expect(t, s, state{}.with("k", data, "0", "1"))
		}
		s.Close()
		p.expect(t, p.open(t), state{}.with("k", "newest", "0", "1"))
	})
}

func TestDelete(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		for _, key := range []string{"a", "b", "c"} {
			mustPut(t, s, key, key, textFile(t, key))
		}
		for _, key := range []string{"b", "b", "never there"} {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Errorf("delete %s: %v", key, err)
			}
		}
		if err := s.Update(t.Context(), "b", nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("update after delete: %v", err)
		}
		s.Close()
		p.expect(t, p.open(t), state{}.with("a", "a", "a").with("c", "c", "c"))
	})
}

func TestSizesOfData(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		want := state{}
		for i, size := range []int{0, 1, inlineData - 1, inlineData, inlineData + 1, 1 << 20, MaxData} {
			key := fmt.Sprint("k", i)
			// Bytes that JSON cannot carry as they are.
			data := string(bytes.Repeat([]byte{0, 0xff, '"', '\n', byte(i)}, size/5+1)[:size])
			mustPut(t, s, key, "before", textFile(t, key))
			if err := s.Update(t.Context(), key, []byte(data)); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			want = want.with(key, data, key)
			mustPut(t, s, key+"put", data)
			want = want.with(key+"put", data)
		}
		s.Close()
		s = p.open(t)
		p.expect(t, s, want)
		err := s.Put(t.Context(), "big", make([]byte, MaxData+1), nil)
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "data of big has 16777217 bytes, above the limit of 16777216") {
			t.Errorf("one byte more: %v", err)
		}
		if err := s.Update(t.Context(), "k0", make([]byte, MaxData+1)); !errors.Is(err, ErrFull) {
			t.Errorf("one byte more in an update: %v", err)
		}
		p.expect(t, s, want)
	})
}

func TestNumbersOfDescriptors(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		want := state{}
		for _, n := range []int{0, 1, packetFiles - 1, packetFiles, packetFiles + 1, 2*packetFiles + 1, MaxFiles} {
			for _, data := range []string{"small", strings.Repeat("x", inlineData+1)} {
				key := fmt.Sprintf("%d-%d", n, len(data))
				texts := numbered(key+".", n)
				mustPut(t, s, key, data, textFiles(t, texts...)...)
				want = want.with(key, data, texts...)
			}
		}
		err := s.Put(t.Context(), "many", nil, textFiles(t, numbered("m", MaxFiles+1)...))
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "many has 65 descriptors, above the limit of 64 an entry") {
			t.Errorf("one more: %v", err)
		}
		p.expect(t, s, want)
		s.Close()
		p.expect(t, p.open(t), want)
	})
}

func TestBadArguments(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		for key, text := range map[string]string{
			"":                            "key of 0 bytes is not from 1 to 160",
			strings.Repeat("k", MaxKey+1): "key of 161 bytes is not from 1 to 160",
			"a:b":                         `key "a:b" has ':' at byte 1`,
			"a\nb":                        `has '\n' at byte 1`,
			"é":                           "at byte 0: use printable ASCII",
		} {
			for name, err := range map[string]error{
				"put":    s.Put(t.Context(), key, nil, nil),
				"update": s.Update(t.Context(), key, nil),
				"delete": s.Delete(t.Context(), key),
			} {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%s of key %.20q: %v, want %q", name, key, err, text)
				}
			}
		}
		mustPut(t, s, strings.Repeat("k", MaxKey), "the longest key")
		if err := s.Put(t.Context(), "k", nil, []*os.File{nil}); err == nil || !strings.Contains(err.Error(), "file 0 of k is nil") {
			t.Errorf("nil file: %v", err)
		}
		closed := textFile(t, "closed")
		closed.Close()
		err := s.Put(t.Context(), "k", nil, []*os.File{textFile(t, "open"), closed})
		if p.keeps && (err == nil || !strings.Contains(err.Error(), "use of closed file")) {
			t.Errorf("closed file: %v", err)
		}
		p.expect(t, s, state{}.with(strings.Repeat("k", MaxKey), "the longest key"))
	})
}

func TestEndedContextChangesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		mustPut(t, s, "k", "old", textFile(t, "f"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, loadErr := s.Load(ctx)
		for name, err := range map[string]error{
			"put":    s.Put(ctx, "k", []byte("new"), nil),
			"update": s.Update(ctx, "k", []byte("new")),
			"delete": s.Delete(ctx, "k"),
			"load":   loadErr,
		} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.expect(t, s, state{}.with("k", "old", "f"))
	})
}

func TestClosedStore(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		lost := s.Lost()
		if s.String() == "" {
			t.Error("it has no name")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		_, loadErr := s.Load(t.Context())
		for name, err := range map[string]error{
			"put":    s.Put(t.Context(), "k", nil, nil),
			"update": s.Update(t.Context(), "k", nil),
			"delete": s.Delete(t.Context(), "k"),
			"load":   loadErr,
			"close":  s.Close(),
		} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		select {
		case <-lost:
			t.Error("a closed store is not a lost one")
		default:
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		want := state{}
		var wg sync.WaitGroup
		for g := range 6 {
			key := fmt.Sprint("k", g)
			texts := numbered(key, g*3)
			files := textFiles(t, texts...)
			want = want.with(key, "9", texts...)
			wg.Go(func() {
				for i := range 10 {
					if err := s.Put(t.Context(), key, fmt.Append(nil, i), files); err != nil {
						t.Error(err)
					}
					if err := s.Update(t.Context(), key, fmt.Append(nil, i)); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				entries, err := s.Load(t.Context())
				if err != nil {
					t.Error(err)
				}
				closeEntries(entries)
			})
		}
		wg.Wait()
		p.expect(t, s, want)
	})
}
