package keeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

// fillable is a keeper that takes "fill" and "free" as lines: it opens all descriptors that it may, and closes them.
func fillable(args []string) {
	ready := make(chan struct{})
	go func() {
		err := Serve(context.Background(), ServeOptions{Socket: args[0], Ready: func() { close(ready) }})
		fmt.Println("served", err)
		os.Exit(1)
	}()
	<-ready
	fmt.Println("ready")
	var files []*os.File
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch lines.Text() {
		case "fill":
			for {
				f, err := os.Open(os.DevNull)
				if err != nil {
					break
				}
				files = append(files, f)
			}
		case "free":
			closeFiles(files)
			files = nil
		}
		fmt.Println("done")
	}
}

func startFillable(t *testing.T) (p *testutil.Proc, o Options) {
	t.Helper()
	o = Options{Socket: newSocket(t), Exec: []string{"/nonexistent"}}
	p = testutil.Launch(t, testutil.Child{
		Binary: "/bin/sh", Role: "fillable",
		Args: []string{"-c", `ulimit -n 300 && exec "$0" "$@"`, self(t), o.Socket},
	})
	p.Expect("ready")
	return p, o
}

func TestFullDescriptorTableOfTheKeeper(t *testing.T) {
	p, o := startFillable(t)
	r := start2(t, o)
	mustPut(t, r, "k", "old", textFiles(t, "0", "1", "2", "3", "4", "5", "6")...)
	want := state{}.with("k", "old", "0", "1", "2", "3", "4", "5", "6")
	p.Send("fill")
	p.Expect("done")
	before := openFiles(t, p.Pid())
	for _, n := range []int{1, 5, 6, 12} {
		for _, key := range []string{"k", "new"} {
			err := r.Put(t.Context(), key, []byte("new"), textFiles(t, numbered("n", n)...))
			if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
				t.Errorf("put of %d descriptors: %v", n, err)
			}
		}
	}
	if err := r.Update(t.Context(), "k", make([]byte, inlineData+1)); !errors.Is(err, ErrFull) {
		t.Errorf("update with a memfd: %v", err)
	}
	if got := load(t, r); !equal(got, want) {
		t.Errorf("it has\n%v, want\n%v", got, want)
	}
	if after := openFiles(t, p.Pid()); !slices.Equal(before, after) {
		t.Errorf("descriptors leaked: %d before, %d after", len(before), len(after))
	}
	// What needs no descriptor is served.
	if err := r.Update(t.Context(), "k", []byte("updated")); err != nil {
		t.Error(err)
	}
	want = state{}.with("k", "updated", "0", "1", "2", "3", "4", "5", "6")
	// The next broker's connection waits until there is room.
	r.Close()
	next := make(chan error, 1)
	go func() {
		s, err := Start(t.Context(), o)
		if err == nil {
			r = s.(*remote)
		}
		next <- err
	}()
	p.Send("free")
	p.Expect("done")
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if got := load(t, r); !equal(got, want) {
		t.Errorf("it has\n%v, want\n%v", got, want)
	}
	mustPut(t, r, "k", "room again", textFile(t, "z"))
}

func TestFullDescriptorTableOfTheBroker(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	mustPut(t, r, "k", strings.Repeat("x", inlineData+1), textFiles(t, numbered("f", 12)...)...)
	r.Close()
	broker := testutil.Launch(t, testutil.Child{
		Binary: "/bin/sh", Role: "crowded",
		Args: []string{"-c", `ulimit -n 100 && exec "$0" "$@"`, self(t), o.Socket},
	})
	if got := broker.Line(); !strings.Contains(got, "too many open files") && !strings.Contains(got, "RLIMIT_NOFILE") {
		t.Errorf("load into a full table: %s", got)
	}
	broker.Expect("then <nil>, 1 entries, 12 descriptors")
	broker.Succeed()
}

func init() { testutil.Register("crowded", crowded) }

// crowded loads from args[0] with a full table of descriptors, then again.
func crowded(args []string) {
	s, err := Start(context.Background(), childOptions(args[0]))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	var files []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, f)
	}
	closeFiles(files[:7]) // one packet fits, the next one does not
	_, err = s.Load(context.Background())
	fmt.Println(err)
	closeFiles(files[7:])
	entries, err := s.Load(context.Background())
	n := 0
	for _, e := range entries {
		n += len(e.Files)
		e.Close()
	}
	fmt.Printf("then %v, %d entries, %d descriptors\n", err, len(entries), n)
}

func TestBoundsOfTheKeeper(t *testing.T) {
	o := serveHere(t, ServeOptions{Limits: Limits{Entries: 3, Bytes: 100, Descriptors: 4}})
	r := start2(t, o)
	mustPut(t, r, "a", "12345", textFiles(t, "0", "1")...)
	mustPut(t, r, "b", "", textFile(t, "2"))
	want := state{}.with("a", "12345", "0", "1").with("b", "", "2")
	before := openFiles(t, os.Getpid())
	full := func(err error, text string) {
		t.Helper()
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
		if got := load(t, r); !equal(got, want) {
			t.Errorf("it has\n%v", got)
		}
	}
	two := textFiles(t, "3", "4")
	full(r.Put(t.Context(), "c", nil, two), "c would make 5 descriptors, above the keeper's limit of 4")
	full(r.Put(t.Context(), "b", nil, append(two, two[0])), "b would make 5 descriptors")
	full(r.Put(t.Context(), "c", make([]byte, 93), nil), "c would make 101 bytes, above the keeper's limit of 100")
	full(r.Update(t.Context(), "a", make([]byte, 99)), "a would make 101 bytes")
	full(r.Update(t.Context(), "a", make([]byte, inlineData+1)), "a would make 32771 bytes")
	closeFiles(two)
	if after := openFiles(t, os.Getpid()); len(after) != len(before) {
		t.Errorf("descriptors leaked: %d before, %d after", len(before), len(after))
	}
	mustPut(t, r, "c", "")
	want = want.with("c", "")
	full(r.Put(t.Context(), "d", nil, nil), "d would make 4 entries, above the keeper's limit of 3")
	mustPut(t, r, "c", strings.Repeat("x", 92))
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	mustPut(t, r, "d", "", textFiles(t, "5", "6", "7")...)
}

func TestLimitsDefaults(t *testing.T) {
	l, err := Limits{}.withDefaults(20_000)
	if err != nil || l != (Limits{Entries: defaultEntries, Bytes: defaultBytes, Descriptors: 20_000 - spareFiles}) {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err = (Limits{Descriptors: 5}).withDefaults(1 << 62); err != nil || l.Descriptors != 5 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err = (Limits{}).withDefaults(spareFiles); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("needs a limit of open files of %d, which is %d", spareFiles+1, spareFiles)) {
		t.Errorf("%v", err)
	}
}
