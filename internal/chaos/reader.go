package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hugebus/hugebus/client"
)

// errRefused is what a member says about a frame that it puts back.
var errRefused = errors.New("chaos: not this time")

// A ReaderSpec describes a reader process.
type ReaderSpec struct {
	Common
	// Group makes it a member of that group; empty: a subscriber of its own with the fields that follow.
	Group      string
	Policy     client.Policy
	EvictLag   int64
	EvictAfter time.Duration
	// Earliest begins with the earliest frame; otherwise it is the latest.
	Earliest bool
	// Limit is how many frames it takes at a time.
	Limit int
	// Refuse has a member refuse one frame in so many, which puts it back; 0: none.
	Refuse uint64
	// Nap bounds a sleep: after it the reader looks whether it was not woken for something. 0: no bound.
	Nap time.Duration
}

// reading is what Subscriber and Group have in common.
type reading interface {
	Poll(limit int, fn func(client.Frame) error) (int, error)
	Wait(ctx context.Context) error
	Close() error
}

// reader is a reader at work.
type reader struct {
	spec    ReaderSpec
	control *Control
	journal *Journal
	from    reading
	sub     *client.Subscriber // nil for members
	frames  uint64
	last    client.Position
	slept   bool // the last wait ended because its time was over
}

// Read reads a topic and writes records to out, until control says stop; a subscriber then goes on until it has
// reached the position that came with it. It writes "ready" to say when it is attached, and "done FRAMES 0" when it
// has ended and nothing of it is left in its process.
func Read(spec ReaderSpec, control *Control, out, say io.Writer) error {
	before, c, err := spec.begin(control)
	if c == nil {
		return err
	}
	r := &reader{spec: spec, control: control, journal: NewJournal(out, spec.Group != "")}
	if err := control.attaching(func(ctx context.Context) error { return r.attach(ctx, c) }); err != nil {
		return errors.Join(control.unlessStopped(err), c.Close())
	}
	if _, err := fmt.Fprintln(say, "ready"); err != nil {
		return err
	}
	if err = r.run(); err != nil {
		err = fmt.Errorf("chaos: %s, after %d frames, the last at %d: %w", spec.Name, r.frames, r.last, err)
	}
	if err := errors.Join(err, r.journal.Flush(), r.from.Close(), c.Close()); err != nil {
		return err
	}
	if err := before.Left(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(say, "done", r.frames, 0)
	return err
}

func (r *reader) attach(ctx context.Context, c *client.Client) error {
	start := client.Latest()
	if r.spec.Earliest {
		start = client.Earliest()
	}
	if r.spec.Group != "" {
		g, err := c.Group(ctx, r.spec.Topic, r.spec.Group, client.GroupOptions{Name: r.spec.Name, Start: start, Wait: r.spec.Wait})
		if err != nil {
			return err
		}
		r.from = g
		return r.journal.Add(Record{Kind: KindReached})
	}
	s, err := c.Subscriber(ctx, r.spec.Topic, client.SubscriberOptions{
		Name: r.spec.Name, Policy: r.spec.Policy, EvictLag: r.spec.EvictLag, EvictAfter: r.spec.EvictAfter,
		Start: start, Wait: r.spec.Wait,
	})
	if err != nil {
		return err
	}
	r.from, r.sub = s, s
	return r.idle()
}

// run reads until it is told to stop, and has reached where.
func (r *reader) run() error {
	for !r.control.quit.Load() {
		n, err := r.from.Poll(r.spec.Limit, r.handle)
		r.slept = false
		if err != nil {
			if err := r.interrupted(err); err != nil {
				return err
			}
			continue
		}
		if n > 0 {
			continue
		}
		if r.reached() {
			return r.idle()
		}
		if err := r.idle(); err != nil {
			return err
		}
		if err := r.wait(); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for more, or to be told to stop.
func (r *reader) wait() error {
	ctx := r.control.ctx
	if r.spec.Nap > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.spec.Nap)
		defer cancel()
	}
	err := r.from.Wait(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		r.slept = true
	case err != nil && !errors.Is(err, context.Canceled):
		return err
	}
	return nil
}

// reached reports whether it may end.
func (r *reader) reached() bool {
	if !r.control.stopped.Load() {
		return false
	}
	return r.sub == nil || !r.sub.Position().Before(client.Position(r.control.until.Load()))
}

// idle says how far it has come, and lets the checker have everything.
func (r *reader) idle() error {
	if r.sub != nil {
		if err := r.journal.Add(Record{Kind: KindReached, Position: uint64(r.sub.Position())}); err != nil {
			return err
		}
	}
	return r.journal.Flush()
}

// handle reports a frame. A member's record is out before it acknowledges the frame.
func (r *reader) handle(f client.Frame) error {
	publisher, seq, sum, ok := Inspect(f.Payload)
	kind := KindFrame
	if !ok {
		kind = KindCorrupt
	}
	r.frames, r.last = r.frames+1, f.Position
	if r.slept {
		r.slept = false
		if err := r.journal.Add(Record{Kind: KindOverslept, Position: uint64(f.Position)}); err != nil {
			return err
		}
	}
	err := r.journal.Add(Record{
		Kind: kind, Source: f.Source, Redelivered: f.Redelivered, Length: uint32(len(f.Payload)), Publisher: publisher,
		Sum: sum, Position: uint64(f.Position), Sequence: seq,
	})
	if err == nil && r.spec.Refuse > 0 && r.frames%r.spec.Refuse == 0 {
		return errRefused
	}
	return err
}

// interrupted reports what is not a frame and no failure.
func (r *reader) interrupted(err error) error {
	var gap *client.GapError
	switch {
	case errors.Is(err, errRefused):
		return nil
	case errors.As(err, &gap):
		return r.journal.Add(Record{Kind: KindGap, Position: uint64(gap.From), To: uint64(gap.To)})
	case errors.Is(err, client.ErrEvicted):
		return r.journal.Add(Record{Kind: KindEvicted})
	}
	return err
}
