// Package examples_test runs every example as its own process against a broker.
package examples_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// start runs an example against a broker of its own.
func start(t *testing.T, name string, args ...string) *testutil.Proc {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "h.sock")
	b, err := broker.New(broker.Config{
		Socket:   socket,
		Logger:   slog.New(slog.NewTextHandler(io.Discard, nil)),
		Defaults: broker.TopicOptions{Capacity: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("broker: %v", err)
		}
	})
	return testutil.Launch(t, testutil.Child{
		Binary: testutil.BuildTagged(t, "github.com/hugebus/hugebus/examples/"+name, ""),
		Args:   args,
		Env:    []string{"HUGEBUS_SOCKET=" + socket},
	})
}

func TestQuickstart(t *testing.T) {
	p := start(t, "quickstart")
	for i, word := range []string{"hello", "shared", "memory"} {
		if got, want := p.Line(), fmt.Sprintf("%s at position %d", word, i*64); got != want {
			t.Errorf("line %d: %q, want %q", i, got, want)
		}
	}
	p.Succeed()
}

func TestWorkers(t *testing.T) {
	p := start(t, "workers")
	var jobs []string
	for range 30 {
		line := p.Line()
		_, job, ok := strings.Cut(line, ": ")
		if !ok || !strings.HasPrefix(line, "worker ") {
			t.Fatalf("line %q", line)
		}
		jobs = append(jobs, job)
	}
	p.Succeed()
	slices.Sort(jobs)
	var want []string
	for i := range 30 {
		times := 0
		if i == 7 {
			times = 1
		}
		want = append(want, fmt.Sprintf("job %d (redelivered %d times)", i, times))
	}
	slices.Sort(want)
	if !slices.Equal(jobs, want) {
		t.Errorf("jobs done:\n%s", strings.Join(jobs, "\n"))
	}
}

func TestIngress(t *testing.T) {
	p := start(t, "ingress")
	address, ok := strings.CutPrefix(p.Line(), "listening on ")
	if !ok {
		t.Fatal("no address")
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "one\n\nthree\n"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "", "three"} {
		if got := p.Line(); got != want {
			t.Errorf("line %q, want %q", got, want)
		}
	}
	p.Signal(syscall.SIGTERM)
	p.Succeed()
}
