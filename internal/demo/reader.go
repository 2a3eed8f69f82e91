package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/sys"
)

// A Spec tells a reader process what to do. It travels as one argument.
type Spec struct {
	Socket string `json:"socket"`
	Topic  string `json:"topic"`
	Name   string `json:"name"`
	// Group is empty for the subscriber.
	Group string `json:"group,omitempty"`
	// Frames is how many there are in all; Full how many belong to the first part, and the last part begins at Paced.
	Frames uint64 `json:"frames"`
	Full   uint64 `json:"full"`
	Paced  uint64 `json:"paced"`
}

// tallyFile is the descriptor by which a reader process gets its tally.
const tallyFile = 3

// readyLine is what a reader process writes when it is attached.
const readyLine = "ready"

// pollFrames is how many frames a reader takes at once.
const pollFrames = 64

// source is a subscriber or a member of a group.
type source interface {
	Poll(limit int, fn func(client.Frame) error) (int, error)
	Wait(ctx context.Context) error
	Close() error
}

// Kinds of processes that the demo starts.
const (
	KindReader  = "reader"  // a worker or the subscriber; its argument is a Spec as JSON
	KindCounter = "counter" // counts the system calls of the process whose pid is its argument
)

// Child is the life of a process that the demo has started.
func Child(ctx context.Context, kind, arg string, in io.Reader, out io.Writer) error {
	switch kind {
	case KindReader:
		return read(ctx, arg, in, out)
	case KindCounter:
		return countFor(arg, in, out)
	}
	return fmt.Errorf("demo: unknown process %q: it is not for people: hugebus demo starts it", kind)
}

// read is the life of a reader process: it attaches, says so on out, and reads until in ends and nothing is left.
func read(ctx context.Context, spec string, in io.Reader, out io.Writer) error {
	var s Spec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return fmt.Errorf("demo: what to read: %w", err)
	}
	if err := sys.AllowTracing(); err != nil {
		return err
	}
	t, err := openTally(os.NewFile(tallyFile, "tally"), s.Frames)
	if err != nil {
		return err
	}
	defer func() { _ = t.close() }() // the segment lives on in the demo
	r, err := newReader(s, t)
	if err != nil {
		return err
	}
	c, err := client.Dial(ctx, client.Options{Socket: s.Socket, Name: s.Name, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	src, err := attach(ctx, c, s)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	if _, err := fmt.Fprintln(out, readyLine); err != nil {
		return errors.Join(err, src.Close(), c.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in) // only its end says anything
		cancel()
	}()
	return errors.Join(r.run(ctx, src), src.Close(), c.Close())
}

func attach(ctx context.Context, c *client.Client, s Spec) (source, error) {
	if s.Group != "" {
		return c.Group(ctx, s.Topic, s.Group, client.GroupOptions{Start: client.Earliest()})
	}
	return c.Subscriber(ctx, s.Topic, client.SubscriberOptions{Start: client.Earliest()})
}

// reader checks and counts frames.
type reader struct {
	Spec
	tally *tally
	clock clock
	next  uint64 // lowest number that is not out of order
}

func newReader(s Spec, t *tally) (*reader, error) {
	c, err := newClock()
	return &reader{Spec: s, tally: t, clock: c}, err
}

// run reads until ctx has ended and nothing is left.
func (r *reader) run(ctx context.Context, src source) error {
	for {
		n, err := src.Poll(pollFrames, r.frame)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := src.Wait(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// frame checks one frame and marks it. It never refuses one.
func (r *reader) frame(f client.Frame) error {
	seq, sent, ok := inspect(f.Payload)
	ok = ok && seq < r.Frames
	if ok {
		now := r.clock.now()
		if r.tally.mark(seq) {
			r.tally.add(tallyDuplicated, 1)
		}
		if seq < r.next {
			r.tally.add(tallyDisordered, 1)
		}
		r.next = max(r.next, seq+1)
		r.time(seq, now-sent, now)
	} else {
		r.tally.add(tallyCorrupted, 1)
	}
	if f.Redelivered > 0 {
		r.tally.add(tallyRedelivered, 1)
	}
	r.tally.add(tallyBytes, uint64(len(f.Payload)))
	r.tally.add(tallyFrames, 1)
	return nil
}

// time counts the latency of frames that are not slowed down by our counting system calls.
func (r *reader) time(seq uint64, took, now time.Duration) {
	switch {
	case seq < r.Full:
		r.tally.took(latencyFull, took)
		r.tally.set(tallyLastFull, uint64(now))
	case seq >= r.Paced:
		r.tally.took(latencyPaced, took)
	}
}
