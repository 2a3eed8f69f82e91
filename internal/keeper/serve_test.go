package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestOneKeeperForASocket(t *testing.T) {
	o := serveHere(t, ServeOptions{})
	err := Serve(t.Context(), ServeOptions{Socket: o.Socket})
	if !errors.Is(err, errLocked) || !strings.Contains(err.Error(), fmt.Sprint("pid ", os.Getpid(), " has locked ", o.Socket+lockSuffix)) {
		t.Errorf("a second keeper: %v", err)
	}
	// A socket that somebody has removed does not make room for another one either.
	if err := os.Remove(o.Socket); err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), ServeOptions{Socket: o.Socket}); !errors.Is(err, errLocked) {
		t.Errorf("a second keeper: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	so := options(t, o.Socket)
	waiting := make(chan struct{})
	go func() { // as soon as Start has tried once
		<-waiting
		cancel()
	}()
	so.Exec = append([]string{"/bin/sh", "-c", `: > "$0"; exec "$@"`, o.Socket + ".tried"}, so.Exec...)
	go func() {
		testutil.Eventually(t, "a process was tried", func() bool { _, err := os.Stat(o.Socket + ".tried"); return err == nil })
		close(waiting)
	}()
	if _, err := Start(ctx, so); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
}

// TestLockIsHeldByOne has many take the lock and give it back, file and all, at once.
func TestLockIsHeldByOne(t *testing.T) {
	socket := newSocket(t)
	var holders, turns int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for done := 0; done < 50; {
				l, err := lockSocket(socket)
				if errors.Is(err, errLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				holders++
				if turns++; holders != 1 {
					t.Errorf("%d hold the lock", holders)
				}
				mu.Unlock()
				done++
				mu.Lock()
				holders--
				mu.Unlock()
				if err := l.remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if turns != 8*50 {
		t.Errorf("%d turns", turns)
	}
	if _, err := os.Stat(socket + lockSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("lock file: %v", err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	socket := newSocket(t)
	ready := make(chan struct{})
	done := make(chan error)
	go func() { done <- Serve(ctx, ServeOptions{Socket: socket, Ready: func() { close(ready) }}) }()
	<-ready
	r := start2(t, Options{Socket: socket, Exec: []string{"/nonexistent"}})
	mustPut(t, r, "k", "", textFile(t, "f"))
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-r.Lost()
	if err := r.Update(t.Context(), "k", nil); !errors.Is(err, ErrLost) {
		t.Errorf("%v", err)
	}
}

func TestFlags(t *testing.T) {
	want := flags{ServeOptions: ServeOptions{Socket: "/s", Limits: Limits{Entries: 1, Bytes: 2, Descriptors: 3}, Idle: time.Minute}, ready: 3}
	got, err := parseFlags(want.args(), io.Discard)
	if err != nil || got.Socket != want.Socket || got.Limits != want.Limits || got.Idle != want.Idle || got.ready != want.ready {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parseFlags(nil, io.Discard); err != nil || got.ready != -1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMainOfTheSubcommand(t *testing.T) {
	socket := newSocket(t)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--colour"}, 2, "flag provided but not defined: -colour"},
		{[]string{"more"}, 2, `hugebus keeper: argument "more" is not known`},
		{nil, 1, "socket path is empty"},
		{[]string{"--socket", socket, "--descriptors", "1000000000"}, 1, "to hold 1000000000 descriptors"},
	} {
		program := keeperExec(self(t))
		var stderr strings.Builder
		cmd := exec.Command(program[0], append(program[1:], c.args...)...)
		cmd.Stderr = &stderr
		_ = cmd.Run() // its status is checked
		if cmd.ProcessState.ExitCode() != c.status || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: %v, %s, want %q", c.args, cmd.ProcessState, stderr.String(), c.want)
		}
	}
}

func TestLogOfTheKeeper(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	mustPut(t, r, "k", "v", textFile(t, "f"))
	r.Close()
	if err := Shutdown(t.Context(), o.Socket); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(o.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"keeper listens", "socket=" + o.Socket, "keeper serves a broker", "the broker is gone", "entries=1 descriptors=1", "keeper is shut down"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log does not say %q: %s", want, log)
		}
	}
}
