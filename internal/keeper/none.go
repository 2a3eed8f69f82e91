package keeper

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// None returns a Store that keeps nothing: with it everything is gone when the broker is. It only remembers keys, so
// that a mistake of its user is the same error as elsewhere.
func None() Store { return &none{keys: make(map[string]bool)} }

type none struct {
	mu     sync.Mutex
	keys   map[string]bool
	closed bool
}

// do runs fn with the lock held, unless the store is closed or the context over.
func (n *none) do(ctx context.Context, fn func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return os.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fn()
}

func (n *none) Put(ctx context.Context, key string, data []byte, files []*os.File) error {
	return n.do(ctx, func() error {
		if err := checkEntry(key, data, files); err != nil {
			return err
		}
		n.keys[key] = true
		return nil
	})
}

func (n *none) Update(ctx context.Context, key string, data []byte) error {
	return n.do(ctx, func() error {
		if err := checkEntry(key, data, nil); err != nil {
			return err
		}
		if !n.keys[key] {
			return fmt.Errorf("update %q: %w", key, ErrNotFound)
		}
		return nil
	})
}

func (n *none) Delete(ctx context.Context, key string) error {
	return n.do(ctx, func() error {
		delete(n.keys, key)
		return checkKey(key)
	})
}

func (n *none) Load(ctx context.Context) ([]Entry, error) {
	return nil, n.do(ctx, func() error { return nil })
}

func (n *none) Lost() <-chan struct{} { return nil }

func (n *none) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return os.ErrClosed
	}
	n.closed = true
	return nil
}

func (n *none) String() string { return "nothing is kept" }
