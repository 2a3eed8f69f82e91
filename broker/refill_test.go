package broker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/hugebus/hugebus/internal/keeper"
)

// A dyingStore is closed in the middle of each Put, as one is that was lost and replaced.
type dyingStore struct {
	keeper.Store
	put   chan struct{} // closed when Put was called
	close chan struct{}
}

func newDyingStore() *dyingStore {
	return &dyingStore{put: make(chan struct{}), close: make(chan struct{})}
}

func (s *dyingStore) Put(context.Context, string, []byte, []*os.File) error {
	close(s.put)
	<-s.close
	return os.ErrClosed
}

func (s *dyingStore) Close() error {
	close(s.close)
	return nil
}

// TestPutWhileTheStoreIsReplaced: the client that wanted something kept must not hear that the keeper was killed just then.
// Refill comes to what it has.
func TestPutWhileTheStoreIsReplaced(t *testing.T) {
	old, next := newDyingStore(), newDyingStore()
	v := &vault{log: slog.New(slog.DiscardHandler), store: old}
	done := make(chan error)
	go func() { done <- v.put("key", struct{}{}) }()
	<-old.put
	v.replace(next)
	if err := <-done; err != nil {
		t.Errorf("put into a store that was replaced meanwhile: %v", err)
	}
}

// TestPutWhileTheStoreIsClosed: a broker that stops has nobody who refills anything.
func TestPutWhileTheStoreIsClosed(t *testing.T) {
	s := newDyingStore()
	v := &vault{log: slog.New(slog.DiscardHandler), store: s}
	done := make(chan error)
	go func() { done <- v.put("key", struct{}{}) }()
	<-s.put
	if err := v.close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("put into a store that was closed meanwhile: %v", err)
	}
}

// TestRefillWaitsForTopicsThatAreMade: what one of them put into the store that was lost is nowhere else.
func TestRefillWaitsForTopicsThatAreMade(t *testing.T) {
	c := newCatalogue()
	making, finish := make(chan struct{}), make(chan struct{})
	made := make(chan error)
	go func() {
		_, err := c.make("topic", func() (*topic, error) {
			close(making)
			<-finish
			return &topic{name: "topic"}, nil
		})
		made <- err
	}()
	<-making
	found := make(chan []*topic)
	go func() { found <- c.awaited() }()
	close(finish)
	if topics := <-found; len(topics) != 1 || topics[0].name != "topic" {
		t.Errorf("refill finds %v", topics)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
}

// A recordingStore notes in which order entries are put.
type recordingStore struct {
	keeper.Store
	mu   sync.Mutex // guards keys
	keys []string
	fail string // entries of this kind do not fit
}

func (s *recordingStore) Put(ctx context.Context, key string, data []byte, files []*os.File) error {
	s.mu.Lock()
	s.keys = append(s.keys, kindOf(key))
	s.mu.Unlock()
	if s.fail != "" && kindOf(key) == s.fail {
		return keeper.ErrFull
	}
	return s.Store.Put(ctx, key, data, files)
}

// put are the kinds of what was put so far.
func (s *recordingStore) put() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys)
}

// TestRefillPutsClientsFirst: a broker that finds a topic without the clients on it takes what they hold for that of dead
// ones, and repairs the open claims of living publishers. If this broker dies in the middle of a refill the next one
// must rather find clients without their topics.
func TestRefillPutsClientsFirst(t *testing.T) {
	s := start(t, kept(t))
	p, _ := s.secretive(t)
	p.create("orders", small)
	p.publisher("orders")
	for fail, want := range map[string][]string{"": {"socket", "client", "topic"}, "client": {"socket", "client"}} {
		s.vault.mu.Lock()
		store := s.vault.store
		r := &recordingStore{Store: store, fail: fail}
		s.vault.store = r
		s.vault.mu.Unlock()
		if err := s.refill(); (err != nil) != (fail != "") {
			t.Errorf("refill where %q does not fit: %v", fail, err)
		}
		s.vault.mu.Lock()
		s.vault.store = store
		s.vault.mu.Unlock()
		if !slices.Equal(r.put(), want) {
			t.Errorf("refill where %q does not fit puts %q, want %q", fail, r.put(), want)
		}
	}
}

// Update finds nothing: the store is new.
func (s *emptyStore) Update(context.Context, string, []byte) error { return keeper.ErrNotFound }

type emptyStore struct{ recordingStore }

// TestAttachDuringARefill: a client that refill has not come to yet attaches to a topic that is in the new store already. The
// next broker must know of both.
func TestAttachDuringARefill(t *testing.T) {
	s := start(t, kept(t))
	p, _ := s.secretive(t)
	p.create("orders", small)
	p.publisher("orders")
	s.vault.mu.Lock()
	store := s.vault.store
	r := &emptyStore{recordingStore{Store: store}}
	s.vault.store, s.vault.refilling = r, true
	s.vault.mu.Unlock()
	p.create("trades", small)
	p.publisher("trades")
	s.vault.mu.Lock()
	s.vault.store, s.vault.refilling = store, false
	s.vault.mu.Unlock()
	if want := []string{"topic", "client"}; !slices.Equal(r.put(), want) {
		t.Errorf("%q were put, want %q", r.put(), want)
	}
}
