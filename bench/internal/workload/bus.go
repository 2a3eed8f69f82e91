package workload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// A Bus is a broker in this process, on a socket that nobody else knows, with the
// topics of a run.
type Bus struct {
	dir    string
	broker *broker.Broker
	stop   context.CancelFunc
	served chan error
	client *client.Client
	topics int // made by Fresh
	// Pages is what kind of pages the last topic got.
	Pages string
}

// OpenBus starts a broker. Close it after the run.
func OpenBus(ctx context.Context) (*Bus, error) { return openBus(ctx, "") }

// OpenWatchedBus is OpenBus with figures, for MissedWakeups.
func OpenWatchedBus(ctx context.Context) (*Bus, error) { return openBus(ctx, "127.0.0.1:0") }

func openBus(ctx context.Context, metrics string) (_ *Bus, err error) {
	dir, err := os.MkdirTemp("", "hugebus-bench-")
	if err != nil {
		return nil, fmt.Errorf("bench: folder for the broker's socket: %w", err)
	}
	b := &Bus{dir: dir, served: make(chan error, 1)}
	// Workers that end are no news, and its log would tear the progress line.
	b.broker, err = broker.New(broker.Config{Socket: filepath.Join(dir, "control.sock"), Metrics: metrics, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	go func() { b.served <- b.broker.Serve(serving) }()
	if b.client, err = client.Dial(ctx, client.Options{Socket: b.Socket(), Name: "bench"}); err != nil {
		return nil, errors.Join(err, b.end())
	}
	return b, nil
}

// Socket is where workers find the broker.
func (b *Bus) Socket() string { return filepath.Join(b.dir, "control.sock") }

// Create makes a topic.
func (b *Bus) Create(ctx context.Context, name string, o client.TopicOptions) error {
	info, err := b.client.CreateTopic(ctx, name, o)
	if err != nil {
		return err
	}
	b.Pages = info.Pages
	return nil
}

// Close stops the broker and removes its socket.
func (b *Bus) Close() error { return errors.Join(b.client.Close(), b.end()) }

func (b *Bus) end() error {
	b.stop()
	return errors.Join(<-b.served, os.RemoveAll(b.dir))
}

// CheckSize says whether payloads of size bytes fit a topic with this capacity.
func CheckSize(size, capacity int64) error {
	limit := int64(ring.MaxPayload(uint64(capacity)))
	if size <= limit {
		return nil
	}
	remedy := "no capacity is large enough"
	if need := ring.CapacityFor(int(size)); need != 0 {
		remedy = "use --capacity " + shm.FormatSize(int64(need))
	}
	return fmt.Errorf("--size %d: a topic of %s takes payloads of at most %d bytes: %s", size, shm.FormatSize(capacity), limit, remedy)
}

// Fresh makes a topic with a name of its own, and returns that.
func (b *Bus) Fresh(ctx context.Context, o client.TopicOptions) (string, error) {
	b.topics++
	name := fmt.Sprintf("fresh-%d", b.topics)
	return name, b.Create(ctx, name, o)
}

// Remove removes a topic.
func (b *Bus) Remove(ctx context.Context, name string) error { return b.client.RemoveTopic(ctx, name) }
