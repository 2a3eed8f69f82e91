// Package bustest makes a bus in the process of a test, for tests of what is built on package client.
package bustest

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
)

// Connect makes a broker in this process, and a client of it, which both end with the test.
func Connect(t *testing.T) *client.Client {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	b, err := broker.New(broker.Config{Socket: filepath.Join(t.TempDir(), "h.sock"), Logger: quiet, Defaults: broker.TopicOptions{Capacity: 1 << 20}})
	Check(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx) }()
	bus, err := client.Dial(t.Context(), client.Options{Socket: b.Addr(), Logger: quiet})
	Check(t, err)
	t.Cleanup(func() {
		Check(t, bus.Close())
		stop()
		Check(t, <-served)
	})
	return bus
}

// Check ends the test at an error.
func Check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
