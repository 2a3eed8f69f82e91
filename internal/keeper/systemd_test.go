package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() { testutil.Register("service", service) }

// service is a broker under systemd, as far as this package goes.
func service([]string) {
	in := Inherit()
	defer in.Close()
	l, err := in.Listener()
	fmt.Println("listener", err)
	if l != nil {
		fmt.Println(l.Addr().Network(), filepath.Base(l.Addr().String()))
		l.Close()
	}
	s, err := Open(context.Background(), Options{Socket: "/nonexistent/s"}, in)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	entries, err := s.Load(context.Background())
	fmt.Println(s, len(entries), err)
	for _, e := range entries {
		fmt.Println(e.Key, string(e.Data), len(e.Files))
		e.Close()
	}
	fmt.Println(Ready("1 topic\nadopted"), Stopping("by request"))
	fmt.Println(s.Put(context.Background(), "next", []byte("to come"), nil))
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "LISTEN_") {
			fmt.Println("left for children:", v)
		}
	}
}

func packetListener(t *testing.T) (f *os.File, path string) {
	t.Helper()
	path = filepath.Join(filepath.Dir(newSocket(t)), "control.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	return named(t, l, ListenerName), path
}

// named is a listener's file with the name that systemd gives to it.
func named(t *testing.T, l interface{ File() (*os.File, error) }, name string) *os.File {
	t.Helper()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := dup(f)
	if err != nil {
		t.Fatal(err)
	}
	d := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { d.Close() })
	return d
}

func TestServiceUnderSystemd(t *testing.T) {
	for _, address := range []string{newSocket(t), fmt.Sprintf("@hugebus-notify-%d", os.Getpid())} {
		m := newFakeSystemd(t, address, 50)
		s := m.open(t)
		mustPut(t, s, "topic/a", "catalogue", textFiles(t, "0", "1", "2")...)
		s.Close()
		listener, _ := packetListener(t)
		p := m.service(t, testutil.Child{Role: "service"}, listener)
		for _, line := range []string{
			"listener <nil>", "unixpacket control.sock", "systemd's file descriptor store (50 descriptors at most) 1 <nil>",
			"topic/a catalogue 3", "<nil> <nil>", "<nil>",
		} {
			p.Expect(line)
		}
		p.Succeed()
		if strings.Contains(p.Stdout(), "left for children") {
			t.Error(p.Stdout())
		}
		if got := load(t, m.open(t)); !equal(got, state{}.with("topic/a", "catalogue", "0", "1", "2").with("next", "to come")) {
			t.Errorf("after the service: %v", got)
		}
		want := []string{"READY=1\nSTATUS=1 topic adopted", "STOPPING=1\nSTATUS=by request"}
		if !slices.Equal(m.said, want) {
			t.Errorf("it said %q, want %q", m.said, want)
		}
	}
}

func TestListenerOfTheWrongKind(t *testing.T) {
	stream, err := net.ListenUnix("unix", &net.UnixAddr{Name: newSocket(t), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for what, f := range map[string]*os.File{
		"listens on unix": named(t, stream, ListenerName), "listens on tcp": named(t, tcp, ListenerName), "is not a listening socket": textFile(t, ListenerName),
	} {
		in := sortInherited([]*os.File{f})
		if l, err := in.Listener(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, %v, want %q", l, err, what)
		}
		in.Close()
	}
	other := named(t, stream, "other.socket")
	in := sortInherited([]*os.File{other})
	defer in.Close()
	if l, err := in.Listener(); l != nil || err != nil {
		t.Errorf("another socket: %v, %v", l, err)
	}
}

func TestSystemdUsable(t *testing.T) {
	for _, c := range []struct {
		socket, store string
		usable        bool
		want          string
	}{
		{"", "", false, "$FDSTORE is \"\""},
		{"/x", "", false, "set FileDescriptorStoreMax= in the unit, and before systemd 254 Environment=FDSTORE="},
		{"/x", "0", false, "$FDSTORE is \"0\""},
		{"/x", "many", false, "$FDSTORE is \"many\""},
		{"", "9", false, "$NOTIFY_SOCKET is not set"},
		{"/nonexistent/x", "9", true, "systemd's socket ($NOTIFY_SOCKET)"},
	} {
		t.Setenv(notifyEnv, c.socket)
		t.Setenv(storeEnv, c.store)
		if got := SystemdUsable(); got != c.usable {
			t.Errorf("%+v: usable is %v", c, got)
		}
		if _, err := Systemd(t.Context(), &Inherited{}, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestWithoutSystemdNothingIsSaid(t *testing.T) {
	t.Setenv(notifyEnv, "")
	if err := errors.Join(Ready(""), Stopping("")); err != nil {
		t.Error(err)
	}
	t.Setenv(notifyEnv, "/nonexistent/x")
	for _, err := range []error{Ready(""), Stopping("")} {
		if err == nil || !strings.Contains(err.Error(), "to systemd ($NOTIFY_SOCKET)") {
			t.Error(err)
		}
	}
}

func TestOpenPicksAKeeperProcessElsewhere(t *testing.T) {
	t.Setenv(storeEnv, "")
	o := options(t, newSocket(t))
	var log bytes.Buffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	in := sortInherited([]*os.File{textFile(t, storedName{number: 1, key: "k"}.String())})
	s, err := Open(t.Context(), o, in)
	if err != nil {
		t.Fatal(err)
	}
	r := s.(*remote)
	t.Cleanup(func() { r.Close(); kill(t, r.pid) })
	if !strings.Contains(s.String(), "keeper process") || !strings.Contains(log.String(), "they are not adopted; set Environment=FDSTORE=") {
		t.Errorf("%s: %s", s, log.String())
	}
	in.Close()
}

func TestSystemdStoreIsFull(t *testing.T) {
	m := newFakeSystemd(t, newSocket(t), 6)
	s := m.open(t)
	mustPut(t, s, "a", "a", textFiles(t, "0", "1")...) // 3 of 6
	want := state{}.with("a", "a", "0", "1")
	before := openFiles(t, os.Getpid())
	two := textFiles(t, "2", "3")
	err := s.Put(t.Context(), "b", nil, two)
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "b, with 2 descriptors that are not stored yet, would make 7 descriptors in systemd's store, which holds 6: raise FileDescriptorStoreMax=") {
		t.Errorf("%v", err)
	}
	closeFiles(two)
	if after := openFiles(t, os.Getpid()); !slices.Equal(before, after) {
		t.Errorf("descriptors leaked: %q, %q", before, after)
	}
	m.check(t, s)
	if got := load(t, s); !equal(got, want) {
		t.Errorf("%v", got)
	}
	// One place is left for changes, whatever is put.
	mustPut(t, s, "b", "b", textFile(t, "2"))
	if err := s.Put(t.Context(), "c", nil, nil); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	for i := range 3 {
		if err := s.Update(t.Context(), "b", fmt.Append(nil, i)); err != nil {
			t.Error(err)
		}
	}
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	mustPut(t, s, "c", "c", textFile(t, "3"))
	m.check(t, s)
	if got := load(t, m.open(t)); !equal(got, state{}.with("b", "2", "2").with("c", "c", "3")) {
		t.Errorf("%v", got)
	}
}

// TestSystemdDoesNotAnswer ends calls by their context at each message, and checks what the store has when systemd
// listens again.
func TestSystemdDoesNotAnswer(t *testing.T) {
	m := newFakeSystemd(t, newSocket(t), 1000)
	s := m.open(t)
	mustPut(t, s, "k", "old", textFile(t, "old"))
	for i := range 40 { // more than its queue takes, so that some end at a message and not at the barrier
		listen := m.deafen()
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			if i%5 == 4 {
				result <- s.Delete(ctx, "k")
				return
			}
			result <- s.Put(ctx, "k", fmt.Append(nil, i), textFiles(t, numbered(fmt.Sprint(i, "."), i)...))
		}()
		cancel()
		// A Delete has nothing to do if the Put before it ended before its first message.
		if err := <-result; !errors.Is(err, context.Canceled) && (err != nil || i%5 != 4) {
			t.Fatalf("call %d: %v", i, err)
		}
		listen()
		if i%3 == 0 {
			if err := s.Update(t.Context(), "k", []byte("after")); err != nil && !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
			m.check(t, s)
		}
	}
	mustPut(t, s, "k", "new", textFiles(t, "x", "y")...)
	m.check(t, s)
	if got := load(t, m.open(t)); !equal(got, state{}.with("k", "new", "x", "y")) {
		t.Errorf("%v", got)
	}
}

func TestDamagedStore(t *testing.T) {
	blob := func(name storedName, text string) *os.File {
		f, err := newBlob(name.String(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	entry := func(n uint64, key string) storedName { return storedName{entry: true, number: n, key: key} }
	file := func(n uint64) *os.File {
		return renamed(t, textFile(t, fmt.Sprint(n)), storedName{number: n, key: "k"}.String())
	}
	m := newFakeSystemd(t, newSocket(t), 100)
	var log bytes.Buffer
	s, err := openSystemd(t.Context(), m.address, 100, sortInherited([]*os.File{
		blob(entry(10, "good"), `{"key":"good","files":[1,2],"data":"eA=="}`), file(1), file(2),
		blob(entry(9, "good"), `{"key":"good","files":[3],"data":""}`), file(3),
		// The newer generation is not whole: the older one counts.
		blob(entry(12, "gap"), `{"key":"gap","files":[1,77],"data":""}`),
		blob(entry(11, "gap"), `{"key":"gap","files":[2],"data":"eQ=="}`),
		blob(entry(13, "nonsense"), `nonsense`),
		blob(entry(14, "liar"), `{"key":"good","files":[],"data":""}`),
		renamed(t, textFile(t, "not sealed"), entry(15, "open").String()),
		file(3),
		renamed(t, textFile(t, "x"), "hugebus.entry.of another release"),
		renamed(t, textFile(t, "x"), "hugebus.file.007.k"),
	}), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := load(t, s); !equal(got, state{}.with("good", "x", "1", "2").with("gap", "y", "2")) {
		t.Errorf("%v", got)
	}
	for _, want := range []string{"descriptor 77 is missing", "name=hugebus.entry.13.nonsense", "manifest is of", "has seals", "two descriptors of one number", "of another release"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, log.String())
		}
	}
	if s.last != 15 || s.foreign != 2 {
		t.Errorf("counter %d, %d foreign descriptors", s.last, s.foreign)
	}
}

// renamed is f under another name. It takes f over.
func renamed(t *testing.T, f *os.File, name string) *os.File {
	t.Helper()
	fd, err := bare([]*os.File{f})
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd[0]), name)
}

func TestNamesInTheStore(t *testing.T) {
	for _, n := range []storedName{{entry: true, number: 1, key: "a.b/c"}, {number: 1<<63 - 1, key: strings.Repeat("k", MaxKey)}} {
		if got, ok := parseName(n.String()); !ok || got != n || len(n.String()) > 255 {
			t.Errorf("%s: %+v, %v", n, got, ok)
		}
	}
	for _, s := range []string{"", "hugebus.socket", "hugebus.entry.", "hugebus.entry.1", "hugebus.entry.1.", "hugebus.entry.-1.k", "hugebus.entry.01.k",
		"hugebus.entry.+1.k", "hugebus.file.9223372036854775808.k", "hugebus.file.1.k:", "hugebus.file.1." + strings.Repeat("k", MaxKey+1)} {
		if n, ok := parseName(s); ok {
			t.Errorf("%q: %+v", s, n)
		}
	}
}

func TestBlobsCannotChange(t *testing.T) {
	f, err := newBlob("b", []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("T"), 0); err == nil {
		t.Error("it was written")
	}
	if err := f.Truncate(2); err == nil {
		t.Error("it was cut")
	}
	if data, err := readBlob(f, 4); err != nil || string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := readBlob(f, 3); err == nil || !strings.Contains(err.Error(), "has 4 bytes, above the limit of 3") {
		t.Errorf("%v", err)
	}
	half := textFile(t, "half sealed")
	if err := sys.Seal(int(half.Fd()), sys.SealFixed); err != nil {
		t.Fatal(err)
	}
	if _, err := readBlob(half, 100); err == nil || !strings.Contains(err.Error(), "so that it cannot change any more") {
		t.Errorf("%v", err)
	}
	if _, err := readBlob(os.Stdin, 100); err == nil || !strings.Contains(err.Error(), "data is not in a memfd") {
		t.Errorf("%v", err)
	}
}
