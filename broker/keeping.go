package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/keeper"
)

// A KeeperMode says what outlives the broker.
type KeeperMode uint8

const (
	// KeepNothing: topics are gone with the broker. It is the zero value.
	KeepNothing KeeperMode = iota
	// KeepInProcess: a keeper process holds the topics until Stop, or `hugebus shutdown`.
	KeepInProcess
	// KeepBySystem: systemd's file descriptor store if there is one for this process, or
	// else a keeper process.
	KeepBySystem
)

// A KeeperConfig says how topics outlive the broker.
type KeeperConfig struct {
	Mode KeeperMode
	// Exec is the program, with its first arguments, that becomes the keeper process:
	// `hugebus keeper`. It is needed unless Mode is KeepNothing.
	Exec []string
	// LogFile gets what the keeper process logs; empty: nothing is logged.
	LogFile string
}

func (k KeeperConfig) check() *ConfigError {
	if k.Mode > KeepBySystem {
		return wrong("keeper", "mode %d is not one of KeepNothing, KeepInProcess, KeepBySystem", k.Mode)
	}
	if k.Mode != KeepNothing && len(k.Exec) == 0 {
		return wrong("keeper", "the program that becomes the keeper process is missing: set Exec to that of `hugebus keeper`")
	}
	return nil
}

// storePatience bounds each call of the store. A keeper answers in some 50 µs; one that is
// stopped must not hold up clients for ever.
const storePatience = 10 * time.Second

// A vault is the store of this broker. What it is told while the store is lost it forgets:
// refill puts everything into the next one. The zero value keeps nothing. It is safe for
// concurrent use.
type vault struct {
	log *slog.Logger

	mu        sync.Mutex
	store     keeper.Store // nil: nothing is kept
	refilling bool         // the store is new, and does not have everything yet
}

// keeps reports whether anything outlives the broker.
func (v *vault) keeps() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.store != nil
}

// do calls fn with the store, if there is one.
func (v *vault) do(fn func(context.Context, keeper.Store) error) error {
	v.mu.Lock()
	store := v.store
	v.mu.Unlock()
	if store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	err := fn(ctx, store)
	switch {
	case errors.Is(err, keeper.ErrLost), errors.Is(err, os.ErrClosed) && v.replaced(store):
		return nil // refill comes to it
	case errors.Is(err, keeper.ErrFull):
		return control.Errorf(control.CodeQuota, "what must outlive the broker does not fit the keeper: %v", err)
	}
	return err
}

func (v *vault) put(key string, record any, files ...*os.File) error {
	return v.do(func(ctx context.Context, s keeper.Store) error {
		data, err := json.Marshal(record)
		if err != nil {
			return err
		}
		return s.Put(ctx, key, data, files)
	})
}

// update changes an entry. keeper.ErrNotFound: the store is new, and refill has not come to it.
func (v *vault) update(key string, record any) error {
	return v.do(func(ctx context.Context, s keeper.Store) error {
		data, err := json.Marshal(record)
		if err != nil {
			return err
		}
		return s.Update(ctx, key, data)
	})
}

// drop deletes an entry. One that stays is cleared away by the next broker.
func (v *vault) drop(key string) {
	err := v.do(func(ctx context.Context, s keeper.Store) error { return s.Delete(ctx, key) })
	if err != nil {
		v.log.Error("the keeper does not forget what is gone; the next broker will", "entry", key, "error", err)
	}
}

// empty deletes every entry.
func (v *vault) empty() error {
	return v.do(func(ctx context.Context, s keeper.Store) error {
		entries, err := s.Load(ctx)
		for _, e := range entries {
			e.Close()
			err = errors.Join(err, s.Delete(ctx, e.Key))
		}
		return err
	})
}

func (v *vault) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.store == nil {
		return nil
	}
	err := v.store.Close()
	v.store = nil
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return err
}

// replace takes a new store for one that was lost, until everything is in it.
func (v *vault) replace(s keeper.Store) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = v.store.Close() // it is lost
	v.store, v.refilling = s, true
}

// replaced reports whether another store has taken the place of s.
func (v *vault) replaced(s keeper.Store) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.store != nil && v.store != s
}

func (v *vault) isRefilling() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.refilling
}

func (v *vault) refilled() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refilling = false
}

// lost is closed when the store is gone; nil where that cannot be.
func (v *vault) lost() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.store == nil {
		return nil
	}
	return v.store.Lost()
}

// openStore opens what Config.Keeper asks for; nil: nothing is kept.
func (b *Broker) openStore(inherited *keeper.Inherited) (keeper.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	o := keeper.Options{
		Socket: b.config.Socket + keeper.SocketSuffix, Exec: b.config.Keeper.Exec, LogFile: b.config.Keeper.LogFile, Log: b.log,
	}
	var store keeper.Store
	var err error
	switch b.config.Keeper.Mode {
	case KeepInProcess:
		store, err = keeper.Start(ctx, o)
	case KeepBySystem:
		if inherited == nil {
			inherited = &keeper.Inherited{}
		}
		store, err = keeper.Open(ctx, o, inherited)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (`hugebus shutdown` ends a keeper with everything that it has; --no-keeper does without)", err)
	}
	return store, nil
}

// guardStore replaces a keeper process that ends while this broker lives: nothing is lost
// then, because this process has everything.
func (b *Broker) guardStore() {
	for wait := time.Duration(0); ; {
		select {
		case <-b.vault.lost():
		case <-b.stopping:
			return
		}
		b.log.Error("the keeper process has ended: if the broker died now, topics would be lost; starting another")
		store, err := b.openStore(nil)
		if err == nil {
			b.vault.replace(store)
			err = b.refill()
		}
		if err == nil {
			b.vault.refilled()
			b.log.Info("another keeper has everything", "keeper", store.String())
			wait = 0
			continue
		}
		b.log.Error("no keeper: topics would be lost with this broker; trying again", "error", err)
		wait = min(max(2*wait, 100*time.Millisecond), 30*time.Second)
		select {
		case <-time.After(wait):
		case <-b.stopping:
			return
		}
	}
}

// refill puts everything into a new store: clients first, and topics only when all clients are there. If this broker dies in
// between, the next one must not find a topic without who is attached to it, or it would repair the open claims of the
// living; without a topic it knows nothing of their memory, and leaves it alone. What a topic that is being made put
// into the store before is nowhere else: so refill waits for it.
func (b *Broker) refill() error {
	err := b.socket.keep(&b.vault)
	for _, h := range b.allHolders() {
		err = errors.Join(err, h.keepAgain())
	}
	if err != nil {
		return err
	}
	for _, t := range b.topics.awaited() {
		err = errors.Join(err, t.keep())
	}
	return err
}
