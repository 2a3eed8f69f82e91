package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/hugebus/hugebus/client"
)

// A Common is what every worker is told.
type Common struct {
	Socket string
	Topic  string
	Name   string
	Wait   client.Wait
}

// dial connects a worker.
func (c Common) dial(ctx context.Context) (*client.Client, error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	return client.Dial(ctx, client.Options{Socket: c.Socket, Name: c.Name, Logger: quiet})
}

// Arg is a worker's specification as an argument of its process.
func Arg(spec any) (string, error) {
	b, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("chaos: %w", err)
	}
	return string(b), nil
}

// A Control is what a worker's master tells it, line by line: "stop", or "stop POSITION" for readers, which read on up
// to there. The end of the lines changes nothing.
type Control struct {
	stopped atomic.Bool
	until   atomic.Uint64
	ctx     context.Context
}

// NewControl reads in for as long as the process lives.
func NewControl(ctx context.Context, in io.Reader) *Control {
	ctx, cancel := context.WithCancel(ctx)
	c := &Control{ctx: ctx}
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), " ")
			if word != "stop" {
				continue
			}
			if p, err := strconv.ParseUint(rest, 10, 64); err == nil {
				c.until.Store(p)
			}
			c.stopped.Store(true)
			cancel() // whoever sleeps looks again
		}
	}()
	return c
}

// Holdings counts what the process holds: open descriptors and mapped memfds.
func Holdings() (descriptors, mappings int, err error) {
	// The runtime opens what it watches descriptors with when it first needs it, and keeps it: let it do so now.
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, 0, err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, 0, err
	}
	return len(open), strings.Count(string(maps), "/memfd:"), nil
}

// leftover compares Holdings with those before the worker dialled.
func leftover(descriptors, mappings int) error {
	d, m, err := Holdings()
	if err != nil {
		return err
	}
	if d != descriptors || m != mappings {
		return fmt.Errorf("chaos: %d descriptors and %d mappings of segments are open, %d and %d were before", d, m, descriptors, mappings)
	}
	return nil
}
