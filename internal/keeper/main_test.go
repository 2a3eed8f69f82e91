package keeper

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

// keeperRole is the hidden subcommand of this test binary: its first argument is the leash, the rest are Main's.
const keeperRole = "keeper-under-test"

// leashEnv is where keepers find the leash: see testutil.HoldLeash.
const leashEnv = "HUGEBUS_KEEPER_LEASH"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == keeperRole {
		testutil.FollowLeash(os.Args[2])
		os.Exit(Main(os.Args[3:]))
	}
	if len(os.Args) == 3 && os.Args[1] == realRole {
		realService(os.Args[2])
	}
	strangerRole()
	testutil.HoldLeash(leashEnv)
	testutil.Main(m)
}

// keeperExec is how a program of this package's tests becomes a keeper.
func keeperExec(program string) []string {
	return []string{program, keeperRole, os.Getenv(leashEnv)}
}

func self(t testing.TB) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// newSocket is a path for a keeper's socket, short enough for one. A keeper that is there at the end is ended.
func newSocket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hbk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s"+SocketSuffix)
}

// options are those of a keeper process of this test binary.
func options(t testing.TB, socket string) Options {
	t.Helper()
	return Options{Socket: socket, Exec: keeperExec(self(t)), LogFile: socket + ".log"}
}

// start is Start for tests: the keeper is killed when the test ends.
func start(t testing.TB, o Options) *remote {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r := s.(*remote)
	t.Cleanup(func() {
		kill(t, r.pid)
		r.Close() // most tests have
	})
	return r
}

func kill(t testing.TB, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	_ = p.Kill() // it may have ended
	testutil.Eventually(t, "keeper is gone", func() bool { return processState(pid) == "" || processState(pid) == "Z" })
}

// processState is the letter that /proc has for a process; "" if there is none.
func processState(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return strings.Fields(rest)[0]
}

// openFiles returns what a process has open, without what the Go runtime opens when it likes.
func openFiles(t testing.TB, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			names = append(names, target)
		}
	}
	slices.Sort(names)
	return names
}

// memFile is a new memfd that says text.
func memFile(text string) (*os.File, error) {
	fd, err := sys.MemfdCreate("test-"+text, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), text)
	_, err = f.WriteString(text)
	return f, err
}

// textFile is an open file that says text.
func textFile(t testing.TB, text string) *os.File {
	t.Helper()
	f, err := memFile(text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func textFiles(t testing.TB, texts ...string) []*os.File {
	t.Helper()
	files := make([]*os.File, len(texts))
	for i, text := range texts {
		files[i] = textFile(t, text)
	}
	return files
}

// numbered is n texts that begin with prefix.
func numbered(prefix string, n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = prefix + strconv.Itoa(i)
	}
	return texts
}

func eventFile(t testing.TB) *os.File {
	t.Helper()
	fd, err := sys.EventFD()
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "eventfd")
	t.Cleanup(func() { f.Close() })
	return f
}

// saying reads what textFile wrote.
func saying(t testing.TB, f *os.File) string {
	t.Helper()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// same fails the test unless two files are one open file.
func same(t testing.TB, what string, a, b *os.File) {
	t.Helper()
	is, err := sys.SameOpenFile(int(a.Fd()), int(b.Fd()))
	if err != nil || !is {
		t.Errorf("%s: another open file came back (%v)", what, err)
	}
}

// state is a store's content: "data|file texts" by key.
type state map[string]string

func (s state) with(key, data string, files ...string) state {
	next := make(state)
	for k, v := range s {
		next[k] = v
	}
	next[key] = data + "|" + strings.Join(files, ",")
	return next
}

func (s state) without(key string) state {
	next := s.with(key, "")
	delete(next, key)
	return next
}

// load returns the state of a store whose files are all from textFile.
func load(t testing.TB, s Store) state {
	t.Helper()
	entries, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stateOf(t, entries)
}

// stateOf reads entries, and closes them.
func stateOf(t testing.TB, entries []Entry) state {
	t.Helper()
	got := make(state)
	for _, e := range entries {
		var texts []string
		for _, f := range e.Files {
			texts = append(texts, saying(t, f))
		}
		got[e.Key] = string(e.Data) + "|" + strings.Join(texts, ",")
		e.Close()
	}
	return got
}

// shorten keeps states of large data readable.
func (s state) String() string {
	var b strings.Builder
	for k, v := range s {
		if len(v) > 60 {
			v = fmt.Sprintf("%.20q… (%d)", v, len(v))
		}
		fmt.Fprintf(&b, "%s: %s\n", k, v)
	}
	return b.String()
}
