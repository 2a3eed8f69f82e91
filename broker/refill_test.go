package broker

import (
	"context"
	"errors"
	"log/slog"
	"os"
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
