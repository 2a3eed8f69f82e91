package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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
func (c Common) dial(control *Control) (bus *client.Client, err error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	err = control.attaching(func(ctx context.Context) error {
		bus, err = client.Dial(ctx, client.Options{Socket: c.Socket, Name: c.Name, Logger: quiet})
		return err
	})
	return bus, err
}

// attaching calls attach until it is done. What only the broker's death, or what it has not repaired yet, explains is tried
// again, until the worker is told to stop.
func (c *Control) attaching(attach func(ctx context.Context) error) error {
	for {
		err := attach(c.ctx)
		again := errors.Is(err, client.ErrBrokerUnavailable) || errors.Is(err, client.ErrNoSlot) || errors.Is(err, client.ErrBusy) ||
			keeperTooSlow(err)
		if !again || c.stopped.Load() {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-c.ctx.Done():
		}
	}
}

// keeperTooSlow reports whether the broker says that its keeper has not answered for ten seconds: the machine has stood still.
func keeperTooSlow(err error) bool {
	return err != nil && strings.Contains(err.Error(), "the broker failed") && strings.Contains(err.Error(), context.DeadlineExceeded.Error())
}

// begin notes what the worker's process holds before it has anything of the bus, and connects. bus is nil if there is an error,
// and if the worker was told to stop before there was a broker.
func (c Common) begin(control *Control) (before Holdings, bus *client.Client, err error) {
	if before, err = Held(); err != nil {
		return nil, nil, err
	}
	if bus, err = c.dial(control); err != nil {
		return nil, nil, control.unlessStopped(err)
	}
	return before, bus, nil
}

// unlessStopped is err, or nil if it is only that the worker was told to stop.
func (c *Control) unlessStopped(err error) error {
	if c.stopped.Load() && (errors.Is(err, context.Canceled) || errors.Is(err, client.ErrBrokerUnavailable) ||
		errors.Is(err, client.ErrNoSlot) || errors.Is(err, client.ErrBusy)) {
		return nil
	}
	return err
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
	quit    atomic.Bool
	until   atomic.Uint64
	ctx     context.Context
	cancel  context.CancelFunc
}

// Quit stops the worker at once, whatever there is left to read.
func (c *Control) Quit() {
	c.quit.Store(true)
	c.stopped.Store(true)
	c.cancel()
}

// NewControl reads in for as long as the process lives.
func NewControl(ctx context.Context, in io.Reader) *Control {
	ctx, cancel := context.WithCancel(ctx)
	c := &Control{ctx: ctx, cancel: cancel}
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
			c.cancel() // whoever sleeps looks again
		}
	}()
	return c
}

// Holdings is what a process holds: how many open descriptors lead to each thing, and how often each memfd is mapped.
type Holdings map[string]int

// Held looks at this process.
func Held() (Holdings, error) {
	// The runtime opens what it watches descriptors with when it first needs it, and keeps it: let it do so now.
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
	return HeldBy(os.Getpid())
}

// HeldBy looks at any process.
func HeldBy(pid int) (Holdings, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	h := Holdings{}
	for _, e := range open {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil { // an error: closed meanwhile, as the one that read the directory
			h["descriptor of "+to]++
		}
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if _, name, ok := strings.Cut(line, "/memfd:"); ok {
			h["mapping of "+strings.TrimSpace(name)]++
		}
	}
	return h, nil
}

// Left is an error that names what this process holds now and did not hold when h was made.
//
// What is on its way to be closed has some time: a client that is closed while no broker runs still looks for one.
func (h Holdings) Left() error {
	const patience = 15 * time.Second
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		now, err := Held()
		if err != nil {
			return err
		}
		more := h.More(now)
		if len(more) == 0 {
			return nil
		}
		if time.Since(began) > patience {
			return fmt.Errorf("chaos: left over: %s", strings.Join(more, ", "))
		}
	}
}

// More is what now has and h has not.
func (h Holdings) More(now Holdings) (more []string) {
	for what, n := range now {
		if n > h[what] {
			more = append(more, fmt.Sprintf("%d x %s", n-h[what], what))
		}
	}
	slices.Sort(more)
	return more
}
