package keeper

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

// A fakeSystemd does with messages on a notify socket what systemd does (service_notify_message and
// service_add_fd_store in its sources): it stores descriptors under names up to a number, drops those whose open file it
// has, whatever their name, says nothing about either, and hands all of them to the next process.
type fakeSystemd struct {
	t       testing.TB
	address string
	most    int
	socket  *net.UnixConn
	done    sync.WaitGroup

	mu      sync.Mutex
	stored  []fakeStored // newest first
	dropped int          // descriptors that did not fit
	said    []string     // messages that are not about descriptors
	deaf    chan struct{}
}

type fakeStored struct {
	name  string
	fd    int
	inode sys.Inode // those of one open file are the same: it saves most of the comparing
}

func newFakeSystemd(t testing.TB, address string, most int) *fakeSystemd {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	m := &fakeSystemd{t: t, address: address, most: most, socket: socket}
	m.done.Go(m.serve)
	t.Cleanup(m.close)
	return m
}

// close may be called twice.
func (m *fakeSystemd) close() {
	m.socket.Close()
	m.done.Wait()
	for _, f := range m.stored {
		sys.CloseFD(f.fd)
	}
	m.stored = nil
}

func (m *fakeSystemd) serve() {
	data, oob := make([]byte, 4096), make([]byte, sys.RightsSpace(64))
	for {
		n, oobn, flags, _, err := m.socket.ReadMsgUnix(data, oob)
		if err != nil {
			return
		}
		fds, err := sys.ParseRights(oob[:oobn], flags)
		if err != nil {
			m.t.Errorf("fake systemd: %v", err)
		}
		m.waitIfDeaf()
		m.message(string(data[:n]), fds)
	}
}

// listen makes a deaf systemd listen again; deafen returns it.
func (m *fakeSystemd) deafen() (listen func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	deaf := make(chan struct{})
	m.deaf = deaf
	return func() {
		m.mu.Lock()
		m.deaf = nil
		m.mu.Unlock()
		close(deaf)
	}
}

func (m *fakeSystemd) waitIfDeaf() {
	m.mu.Lock()
	deaf := m.deaf
	m.mu.Unlock()
	if deaf != nil {
		<-deaf
	}
}

func (m *fakeSystemd) message(text string, fds []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	vars := make(map[string]string)
	for line := range strings.SplitSeq(text, "\n") {
		name, value, _ := strings.Cut(line, "=")
		vars[name] = value
	}
	switch {
	case vars["FDSTORE"] == "1":
		m.store(vars["FDNAME"], vars["FDPOLL"], fds)
		return
	case vars["FDSTOREREMOVE"] == "1":
		m.stored = slices.DeleteFunc(m.stored, func(f fakeStored) bool {
			if f.name == vars["FDNAME"] {
				sys.CloseFD(f.fd)
				return true
			}
			return false
		})
	case vars["BARRIER"] == "1":
		if text != "BARRIER=1" || len(fds) != 1 {
			m.t.Errorf("fake systemd: barrier %q with %d descriptors", text, len(fds))
		}
	default:
		m.said = append(m.said, text)
	}
	closeFDs(fds)
}

func (m *fakeSystemd) store(name, poll string, fds []int) {
	if len(name) > 255 || strings.Contains(name, ":") || poll != "0" {
		m.t.Errorf("fake systemd: name %q, FDPOLL=%q", name, poll)
	}
	for _, fd := range fds {
		if len(m.stored) >= m.most {
			m.dropped++
			sys.CloseFD(fd)
			continue
		}
		inode, err := sys.InodeOf(fd)
		if err != nil {
			m.t.Errorf("fake systemd: %v", err)
		}
		twice := slices.ContainsFunc(m.stored, func(f fakeStored) bool {
			if f.inode != inode {
				return false
			}
			is, err := sys.SameOpenFile(f.fd, fd)
			if err != nil {
				m.t.Errorf("fake systemd: %v", err)
			}
			return is
		})
		if twice {
			sys.CloseFD(fd)
			continue
		}
		m.stored = slices.Insert(m.stored, 0, fakeStored{name: name, fd: fd, inode: inode})
	}
}

// handOver returns what the next process of the service gets, as it is there.
func (m *fakeSystemd) handOver() []*os.File {
	m.mu.Lock()
	defer m.mu.Unlock()
	var files []*os.File
	for _, f := range m.stored {
		fd, err := sys.Dup(f.fd)
		if err != nil {
			m.t.Fatal(err)
		}
		files = append(files, os.NewFile(uintptr(fd), f.name))
	}
	return files
}

// open is what a process of the service does at its start, in this one.
func (m *fakeSystemd) open(t testing.TB) *systemdStore {
	t.Helper()
	s, err := openSystemd(t.Context(), m.address, m.most, sortInherited(m.handOver()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// names are those of what is stored, sorted.
func (m *fakeSystemd) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, f := range m.stored {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

func (m *fakeSystemd) lost() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dropped
}

// service starts a role as systemd starts a service: with what it stores, and with extra sockets before.
func (m *fakeSystemd) service(t testing.TB, c testutil.Child, sockets ...*os.File) *testutil.Proc {
	t.Helper()
	files := append(slices.Clone(sockets), m.handOver()...)
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name()
	}
	program := c.Binary
	if program == "" {
		program = self(t)
	}
	// LISTEN_PID is the process that is meant, and exec keeps it.
	c.Binary, c.Args = "/bin/sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`, program}, c.Args...)
	c.Files = files
	c.Env = append(c.Env, "LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"),
		notifyEnv+"="+m.address, storeEnv+"="+strconv.Itoa(m.most))
	p := testutil.Launch(t, c)
	closeFiles(files[len(sockets):])
	return p
}

// check fails the test unless the store holds what its entries need, and nothing else.
func (m *fakeSystemd) check(t testing.TB, s *systemdStore) {
	t.Helper()
	m.settle(t)
	var want []string
	for _, e := range s.entries {
		want = append(want, e.name.String())
	}
	for _, f := range s.files {
		want = append(want, f.name.String())
	}
	slices.Sort(want)
	if got := m.names(); !slices.Equal(got, want) || m.lost() != 0 {
		t.Errorf("systemd stores\n%s\nand has dropped %d; wanted\n%s", strings.Join(got, "\n"), m.lost(), strings.Join(want, "\n"))
	}
}
