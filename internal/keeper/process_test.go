package keeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	testutil.Register("holder", holder)
	testutil.Register("fillable", fillable)
}

// childOptions are options for a role: args are the socket and nothing else.
func childOptions(socket string) Options {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Options{Socket: socket, Exec: keeperExec(program), LogFile: socket + ".log"}
}

// holder takes the lease of args[0], puts an entry, and holds on.
func holder(args []string) {
	s, err := Start(context.Background(), childOptions(args[0]))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Put(context.Background(), "of the holder", []byte(strconv.Itoa(os.Getpid())), nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("holds", s.(*remote).pid)
	select {}
}

func startHolder(t *testing.T, socket string) (p *testutil.Proc, keeperPID int) {
	t.Helper()
	p = testutil.Start(t, "holder", socket)
	if _, err := fmt.Sscanf(p.Line(), "holds %d", &keeperPID); err != nil {
		t.Fatalf("holder: %v: %s", err, p.Stdout())
	}
	t.Cleanup(func() { kill(t, keeperPID) })
	return p, keeperPID
}

func TestLeaseIsHeldByALivingBrokerAlone(t *testing.T) {
	o := options(t, newSocket(t))
	broker, _ := startHolder(t, o.Socket)
	refused := func(what string) {
		t.Helper()
		_, err := Start(t.Context(), o)
		var held *HeldError
		if !errors.Is(err, ErrHeld) || !errors.As(err, &held) || held.PID != broker.Pid() {
			t.Fatalf("%s: %v (%+v), want one that names pid %d", what, err, held, broker.Pid())
		}
		if !strings.Contains(err.Error(), "two brokers must not have the same topics") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a running broker")
	broker.Signal(syscall.SIGSTOP)
	testutil.Eventually(t, "the broker is stopped", func() bool { return processState(broker.Pid()) == "T" })
	refused("a stopped broker")
	if err := Shutdown(t.Context(), o.Socket); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), fmt.Sprint("pid ", broker.Pid())) {
		t.Errorf("shutdown under a stopped broker: %v", err)
	}
	broker.Kill()
	r := start(t, o) // at once: no waiting, no second try
	if got, want := load(t, r), (state{}).with("of the holder", strconv.Itoa(broker.Pid())); !equal(got, want) {
		t.Errorf("after its death: %v", got)
	}
	if _, err := Start(t.Context(), o); !errors.Is(err, ErrHeld) {
		t.Errorf("a second store of one process: %v", err)
	}
}

func TestOneOfManyBrokersGetsTheLease(t *testing.T) {
	o := options(t, newSocket(t))
	const brokers = 8
	var mu sync.Mutex
	var got []*remote
	var wg sync.WaitGroup
	for range brokers {
		wg.Go(func() {
			s, err := Start(t.Context(), o)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				got = append(got, s.(*remote))
			} else if !errors.Is(err, ErrHeld) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range got {
		t.Cleanup(func() { r.Close(); kill(t, r.pid) })
	}
	if len(got) != 1 {
		t.Fatalf("%d of %d brokers have the lease", len(got), brokers)
	}
	mustPut(t, got[0], "k", "")
}

func TestKeeperProcessIsOnItsOwn(t *testing.T) {
	o := options(t, newSocket(t))
	o.LogFile = ""
	r := start(t, o)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if pgrp, session, tty := fields[2], fields[3], fields[4]; pgrp != strconv.Itoa(r.pid) || session != pgrp || tty != "0" {
		t.Errorf("process group %s, session %s, terminal %s; pid %d", pgrp, session, tty, r.pid)
	}
	if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", r.pid)); err != nil || cwd != "/" {
		t.Errorf("it is in %s, %v", cwd, err)
	}
	for fd := range 3 {
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", r.pid, fd)); err != nil || got != os.DevNull {
			t.Errorf("descriptor %d is %s, %v", fd, got, err)
		}
	}
	testutil.Eventually(t, "it has closed the pipe on which it said that it is ready", func() bool {
		return !slices.ContainsFunc(openFiles(t, r.pid), func(target string) bool { return strings.HasPrefix(target, "pipe:") })
	})
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", r.pid))
	if err != nil || strings.Contains(string(env), notifyEnv) {
		t.Errorf("its environment: %q, %v", env, err)
	}
}

func TestKeeperEnvironmentIsNotSystemds(t *testing.T) {
	in := []string{"HOME=/", "NOTIFY_SOCKET=/x", "LISTEN_FDS=1", "LISTEN_PID=2", "LISTEN_FDNAMES=a", "WATCHDOG_USEC=1", "FDSTORE=9", "FDSTOREX=1"}
	if got := keeperEnv(in); !slices.Equal(got, []string{"HOME=/", "FDSTOREX=1"}) {
		t.Errorf("%q", got)
	}
}

func TestKeeperIgnoresTheSignalsOfHabit(t *testing.T) {
	r := start(t, options(t, newSocket(t)))
	mustPut(t, r, "k", "v")
	p, err := os.FindProcess(r.pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE} {
		if err := p.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := load(t, r); !equal(got, state{}.with("k", "v")) {
			t.Errorf("after %v: %v", sig, got)
		}
	}
}

func TestKeeperOutlivesItsBroker(t *testing.T) {
	o := options(t, newSocket(t))
	first, keeperPID := startHolder(t, o.Socket)
	first.Signal(syscall.SIGTERM)
	first.Wait()
	second, samePID := startHolder(t, o.Socket)
	second.Kill()
	if keeperPID != samePID {
		t.Errorf("keeper %d, then %d", keeperPID, samePID)
	}
}

func TestLostKeeper(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	f := textFile(t, "f")
	mustPut(t, r, "k", "v", f)
	select {
	case <-r.Lost():
		t.Fatal("lost too early")
	default:
	}
	kill(t, r.pid)
	<-r.Lost()
	_, loadErr := r.Load(t.Context())
	for name, err := range map[string]error{
		"put": r.Put(t.Context(), "k", nil, nil), "update": r.Update(t.Context(), "k", nil), "delete": r.Delete(t.Context(), "k"), "load": loadErr,
	} {
		if !errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	testutil.Eventually(t, "no dead child is left", func() bool { return processState(r.pid) == "" })
	if err := r.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	// The socket and the lock file of the dead are there, and no obstacle.
	again := start(t, o)
	if got := load(t, again); len(got) != 0 {
		t.Errorf("a new keeper has %v", got)
	}
	mustPut(t, again, "k", "v", f)
	if got := load(t, again); !equal(got, state{}.with("k", "v", "f")) {
		t.Errorf("%v", got)
	}
}

func TestShutdown(t *testing.T) {
	o := options(t, newSocket(t))
	if err := Shutdown(t.Context(), o.Socket); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), o.Socket) {
		t.Errorf("no keeper: %v", err)
	}
	r := start(t, o)
	mustPut(t, r, "k", "v", textFile(t, "f"))
	if err := Shutdown(t.Context(), o.Socket); !errors.Is(err, ErrHeld) {
		t.Errorf("while a broker lives: %v", err)
	}
	mustPut(t, r, "k", "and it still serves")
	r.Close()
	if err := Shutdown(t.Context(), o.Socket); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the keeper has ended", func() bool { s := processState(r.pid); return s == "" || s == "Z" })
	left, err := filepath.Glob(o.Socket + "*")
	if err != nil || !slices.Equal(left, []string{o.LogFile}) {
		t.Errorf("left: %q, %v", left, err)
	}
	if got := load(t, start(t, o)); len(got) != 0 {
		t.Errorf("the next keeper has %v", got)
	}
}

// Two that end a keeper at once, as a broker and `hugebus shutdown` do, have both done it.
func TestShutdownTwiceAtOnce(t *testing.T) {
	for range 20 {
		o := options(t, newSocket(t))
		r := start(t, o)
		r.Close()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := Shutdown(t.Context(), o.Socket); err != nil && !errors.Is(err, ErrNotRunning) {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

func TestIdleKeeperEnds(t *testing.T) {
	o := options(t, newSocket(t))
	o.Idle = 1 // a nanosecond
	r := start(t, o)
	mustPut(t, r, "k", "v")
	r.Close()
	r = start(t, o) // it had something to keep
	if got := load(t, r); len(got) != 1 {
		t.Errorf("entries of a keeper without a broker are gone: %v", got)
	}
	if err := r.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	mustPut(t, r, "k", "v") // and it had a broker
	if err := r.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	r.Close()
	testutil.Eventually(t, "the idle keeper has ended", func() bool { s := processState(r.pid); return s == "" || s == "Z" })
	if _, err := os.Lstat(o.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket: %v", err)
	}
}

// TestManyStartsBesideAnIdleKeeper has brokers come while keepers go.
func TestManyStartsBesideAnIdleKeeper(t *testing.T) {
	o := options(t, newSocket(t))
	o.Idle = 1
	for range 20 {
		r := start(t, o)
		mustPut(t, r, "k", "v")
		if err := r.Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
}

func TestStartErrors(t *testing.T) {
	dir := filepath.Dir(newSocket(t))
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stream, err := net.Listen("unix", filepath.Join(dir, "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	program := keeperExec(self(t))
	short := append([]string{"/bin/sh", "-c", `ulimit -n 200 && exec "$0" "$@"`}, program...)
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"no path", Options{}, "socket path is empty"},
		{"long path", Options{Socket: "/" + strings.Repeat("x", 107)}, "above the kernel's limit of 107"},
		{"no directory", Options{Socket: dir + "/no/s", Exec: program}, "no such file or directory"},
		{"a file there", Options{Socket: file, Exec: program}, "is there and is not a socket: remove it"},
		{"a stream socket there", Options{Socket: dir + "/stream", Exec: program}, "wrong type for socket"},
		{"no program", Options{Socket: dir + "/s", Exec: []string{"/nonexistent", "x"}}, "start /nonexistent x"},
		{"a program that ends", Options{Socket: dir + "/s", Exec: []string{"/bin/false"}}, "exit status 1 before it was ready; it logs to nowhere"},
		{"log file", Options{Socket: dir + "/s", Exec: program, LogFile: dir + "/no/log"}, "no/log: no such file"},
		{"few files", Options{Socket: dir + "/s", Exec: short, Limits: Limits{Descriptors: 5000}},
			"to hold 5000 descriptors it needs a limit of open files of 5160, which is 200: raise the hard limit"},
		{"negative", Options{Socket: dir + "/s", Exec: program, Limits: Limits{Entries: -1}}, "none can be negative"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Start(t.Context(), c.o)
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
}

func TestStartHeedsItsContext(t *testing.T) {
	o := options(t, newSocket(t))
	pidFile := o.Socket + ".pid"
	// A program that takes its time.
	o.Exec = []string{"/bin/sh", "-c", `echo $$ > "$0"; exec sleep 600`, pidFile}
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := Start(ctx, o)
		result <- err
	}()
	var pid int
	testutil.Eventually(t, "the program runs", func() bool {
		text, err := os.ReadFile(pidFile)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if s := processState(pid); s != "" {
		t.Errorf("the program is left behind in state %s", s)
	}
}

// TestCallsHeedTheirContext has a keeper that does not answer for a while.
func TestCallsHeedTheirContext(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	mustPut(t, r, "k", "old", textFile(t, "f"))
	p, err := os.FindProcess(r.pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the keeper is stopped", func() bool { return processState(r.pid) == "T" })
	data := []byte(strings.Repeat("x", inlineData))
	for i := range 20 { // more than the socket's buffer takes
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			switch i % 3 {
			case 0:
				_, err := r.Load(ctx)
				result <- err
			case 1:
				result <- r.Update(ctx, "k", data)
			default:
				result <- r.Put(ctx, "k", data, textFiles(t, numbered("f", 12)...))
			}
		}()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	mustPut(t, r, "k", "new", textFile(t, "g"))
	if got := load(t, r); !equal(got, state{}.with("k", "new", "g")) {
		t.Errorf("%v", got)
	}
}
