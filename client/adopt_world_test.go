package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/internal/keeper/keepertest"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() { testutil.Register("keptbroker", keptBrokerRole) }

// keptBrokerRole serves a broker whose topics a keeper process keeps, until a line comes on standard input.
func keptBrokerRole(args []string) {
	b, err := broker.New(broker.Config{
		Socket: args[0], Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), AdoptGrace: time.Second, GroupLinger: -1,
		Defaults: broker.TopicOptions{Capacity: 64 << 10, Pages: "4KiB"},
		Keeper:   broker.KeeperConfig{Mode: broker.KeepInProcess, Exec: keepertest.Exec()},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		var line string
		_, _ = fmt.Scanln(&line)
		stop()
	}()
	fmt.Println("ready")
	if err := b.Serve(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("stopped")
}

// A keptWorld is a world whose broker is a process of its own, and has a keeper.
type keptWorld struct {
	*world
	t      *testing.T
	broker *testutil.Proc
}

// newKeptWorld starts a broker, with failpoints or none. The client waits for a broker that is away.
func newKeptWorld(t *testing.T, failpoints string) *keptWorld {
	t.Helper()
	return newKeptWorldOf(t, "", failpoints)
}

// newKeptWorldOf is newKeptWorld with a binary that has failpoints.
func newKeptWorldOf(t *testing.T, binary, failpoints string) *keptWorld {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb")
	if err != nil {
		t.Fatal(err)
	}
	k := &keptWorld{t: t, world: &world{socket: filepath.Join(dir, "s"), binary: binary}}
	t.Cleanup(func() {
		k.end()
		os.RemoveAll(dir)
	})
	k.start(failpoints)
	k.c = k.dial()
	return k
}

// start starts a broker on the socket.
func (k *keptWorld) start(failpoints string) {
	k.t.Helper()
	k.launch(failpoints)
	k.broker.Expect("ready")
}

func (k *keptWorld) launch(failpoints string) {
	k.t.Helper()
	k.broker = testutil.Launch(k.t, testutil.Child{
		Binary: k.binary, Role: "keptbroker", Args: []string{k.socket}, Env: []string{failpoint.Env + "=" + failpoints},
	})
}

// upgrade stops the broker in the ordinary way, and starts another.
func (k *keptWorld) upgrade() {
	k.t.Helper()
	k.broker.Send("stop")
	k.broker.Expect("stopped")
	k.broker.Succeed()
	k.start("")
}

func (k *keptWorld) dial() *client.Client {
	k.t.Helper()
	c, err := client.Dial(k.t.Context(), client.Options{Socket: k.socket, Logger: quietLog(), WaitForBroker: -1})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			k.t.Errorf("close: %v", err)
		}
	})
	return c
}

func quietLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// end ends the keeper, whoever has it.
func (k *keptWorld) end() {
	k.broker.Kill()
	if err := keeper.Shutdown(context.Background(), k.socket+keeper.SocketSuffix); err != nil && !errors.Is(err, keeper.ErrNotRunning) {
		k.t.Errorf("end the keeper: %v", err)
	}
}

// entries are the keys of what is kept, by kind. The broker must be gone.
func (k *keptWorld) entries() (kinds []string) {
	k.t.Helper()
	store, err := keeper.Start(k.t.Context(), keeper.Options{Socket: k.socket + keeper.SocketSuffix, Exec: keepertest.Exec()})
	if err != nil {
		k.t.Fatal(err)
	}
	defer store.Close()
	entries, err := store.Load(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	for _, e := range entries {
		e.Close()
		kind, _, _ := strings.Cut(e.Key, "/")
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// keeps checks which kinds of entries are kept.
func (k *keptWorld) keeps(kinds ...string) {
	k.t.Helper()
	if got := k.entries(); !slices.Equal(got, kinds) {
		k.t.Errorf("kept: %v, want %v", got, kinds)
	}
}

// kill kills the broker.
func (k *keptWorld) kill() {
	k.t.Helper()
	k.broker.Kill()
}
