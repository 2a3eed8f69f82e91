package egress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/gateway/outbox"
	"github.com/hugebus/hugebus/ring"
)

// read reads the topic and feeds the writers until ctx ends (nil) or the source fails.
func (e *Egress) read(ctx context.Context) error {
	tape := outbox.NewTape(&e.shared.Blocks)
	defer tape.Close()
	r := reader{e: e, tape: tape}
	r.encode = func(dst []byte) ([]byte, error) { return e.codec.Append(dst, r.payload) }
	take := r.take
	for ctx.Err() == nil {
		n, err := e.cfg.Source.Poll(pollLimit, take)
		if n > 0 && e.cfg.Linger > 0 {
			door.Pause(ctx.Done(), e.cfg.Linger)
			for n == pollLimit || err == nil && n > 0 {
				n, err = e.cfg.Source.Poll(pollLimit, take)
			}
			n = 1 // it goes on, without a wait
		}
		r.feed()
		if err != nil {
			if err = r.told(err); err != nil {
				return err
			}
			continue
		}
		if n == 0 {
			if err := e.cfg.Source.Wait(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

// reader turns frames into segments.
type reader struct {
	e       *Egress
	tape    *outbox.Tape
	payload []byte // argument of encode
	encode  func(dst []byte) ([]byte, error)
	run     outbox.Run // frames that stand side by side, not fed yet
}

// take encodes one frame.
func (r *reader) take(f ring.Frame) error {
	r.payload = f.Payload
	s, err := r.tape.Append(len(f.Payload)+r.e.codec.Overhead(), r.encode)
	if err != nil {
		r.e.unsendable.Add(1)
		r.e.warnings.Warn("unsendable", "a frame is not sent to anybody", slog.Any("error", err), slog.Uint64("position", uint64(f.Position)))
		return nil
	}
	r.e.read1.Add(1)
	r.add(s)
	return nil
}

// add puts a segment behind the run, which is fed first where they do not stand side by side.
func (r *reader) add(s outbox.Segment) {
	if !r.run.Add(s) {
		r.feed()
		r.run.Add(s)
	}
}

// feed gives the run to all writers.
func (r *reader) feed() {
	s, frames, ok := r.run.Take()
	if !ok {
		return
	}
	for _, w := range r.e.writers {
		w.feed(s, frames)
	}
	s.Drop()
}

// told deals with what Poll returned: gaps are told to all clients, and reading goes on; other errors are returned.
func (r *reader) told(err error) error {
	var gap *ring.GapError
	switch {
	case errors.As(err, &gap):
		r.e.missed.Add(gap.Bytes())
		r.e.warnings.Warn("missed", "the topic's publishers were faster than this egress", slog.Any("error", err),
			slog.String("remedy", "subscribe reliably, or give the topic more capacity"))
		s, err := r.tape.Append(maxMark, func(dst []byte) ([]byte, error) { return r.e.mark(dst, 0, gap.Bytes()), nil })
		if err != nil {
			return fmt.Errorf("egress: %w", err)
		}
		r.add(s)
		return nil
	case errors.Is(err, ring.ErrEvicted):
		r.e.warnings.Warn("evicted", "the subscription was too slow, and may miss frames from here on")
		return nil
	}
	return err
}
