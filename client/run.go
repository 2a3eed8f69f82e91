package client

import (
	"context"
	"iter"
)

// run is Run of a Subscriber or a Group, whose methods wait and poll are, and RunBatch: T is what the handler takes.
func run[T any](ctx context.Context, wait func(context.Context) error, poll func(int, func(T) error) (int, error), limit int, fn func(T) error) error {
	stopped := false
	handler := func(t T) error {
		err := fn(t)
		stopped = err == ErrStop
		return err
	}
	for {
		n, err := poll(limit, handler)
		if err != nil || stopped {
			return err
		}
		if n > 0 && ctx.Err() == nil {
			continue
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
}

// frames is Frames of both.
func frames(ctx context.Context, wait func(context.Context) error, poll func(int, func(Frame) error) (int, error), limit int) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		for {
			err := run(ctx, wait, poll, limit, func(f Frame) error {
				if !yield(f, nil) {
					return ErrStop
				}
				return nil
			})
			if err == nil || !yield(Frame{}, err) || !goesOn(err) {
				return
			}
		}
	}
}

// goesOn reports whether reading can go on behind err.
func goesOn(err error) bool {
	_, gap := err.(*GapError)
	return gap || err == ErrEvicted
}
