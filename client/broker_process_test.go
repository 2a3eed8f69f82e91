package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() { testutil.Register("broker", brokerRole) }

// brokerRole serves a broker on the socket that it is told.
func brokerRole(args []string) {
	b, err := broker.New(broker.Config{Socket: args[0], Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	if err := b.Serve(context.Background()); err != nil {
		fmt.Println(err)
	}
}

// brokerProcess is a world whose broker is a process of its own.
func brokerProcess(t *testing.T) (*world, *testutil.Proc) {
	t.Helper()
	return brokerProcessOf(t, "broker")
}

// brokerProcessOf is brokerProcess with another role for that process.
func brokerProcessOf(t *testing.T, role string) (*world, *testutil.Proc) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{socket: filepath.Join(dir, "s")}
	b := testutil.Start(t, role, w.socket)
	b.Expect("ready")
	c, err := client.Dial(t.Context(), client.Options{Socket: w.socket, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
	w.c = c
	return w, b
}
