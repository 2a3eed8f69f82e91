package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/ingress"
	"github.com/hugebus/hugebus/internal/control"
)

// topicName is the demo's only topic, and groupName its group.
const (
	topicName = "demo"
	groupName = "workers"
)

// A bus is a broker of our own, on a socket in a directory that goes with it, and an ingress.
type bus struct {
	dir    string
	socket string
	client *client.Client
	topic  client.TopicInfo

	ingress *ingress.Ingress
	address string

	stopBroker, stopIngress func() error
}

// openBus starts a broker and makes the topic. What fails later than here is told to fail.
func openBus(ctx context.Context, o Options, fail func(error)) (_ *bus, err error) {
	b := &bus{stopBroker: func() error { return nil }, stopIngress: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.dir, err = socketDir(); err != nil {
		return nil, err
	}
	b.socket = filepath.Join(b.dir, "control.sock")
	server, err := broker.New(broker.Config{Socket: b.socket, SocketMode: 0o600, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	b.stopBroker = inBackground("the broker", server.Serve, fail)
	if b.client, err = client.Dial(ctx, client.Options{Socket: b.socket, Name: "hugebus demo", Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	b.topic, err = b.client.CreateTopic(ctx, topicName, client.TopicOptions{Capacity: o.Capacity, Pages: o.Pages})
	return b, err
}

// socketDir makes a directory for the socket, whose path must be short.
func socketDir() (string, error) {
	const longest = control.MaxSocketPath - len("/hugebus-demo-0123456789/control.sock")
	parent := os.TempDir()
	if len(parent) > longest {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "hugebus-demo-")
	if err != nil {
		return "", fmt.Errorf("a directory for the broker's socket: %w: set TMPDIR to one that this user may write to", err)
	}
	return dir, nil
}

// inBackground runs serve until stop is called, which returns its error. If it ends by itself, fail hears of it.
func inBackground(what string, serve func(context.Context) error, fail func(error)) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := serve(ctx)
		if ctx.Err() == nil {
			fail(errors.Join(fmt.Errorf("%s ended by itself", what), err))
		}
		done <- err
	}()
	return func() error {
		cancel()
		err := <-done
		done <- err // for who asks again
		return err
	}
}

// listen starts the ingress.
func (b *bus) listen(ctx context.Context, o Options, fail func(error)) error {
	in, err := ingress.New(ctx, b.client, topicName, ingress.Config{Listen: o.Listen, Lanes: 1, Logger: o.Logger})
	if err != nil {
		return err
	}
	b.ingress, b.address = in, in.Addr().String()
	b.stopIngress = inBackground("the ingress", in.Serve, fail)
	return nil
}

// settled reports whether the group has finished all frames that were published.
func (b *bus) settled(ctx context.Context) (bool, error) {
	t, err := b.client.Topic(ctx, topicName)
	if err != nil {
		return false, err
	}
	for _, g := range t.Groups {
		if g.LagBytes != 0 || g.UnfinishedRanges != 0 {
			return false, nil
		}
	}
	return true, nil
}

// close ends everything and removes the directory. Calling it again does nothing more.
func (b *bus) close() error {
	if b.ingress != nil {
		b.ingress.Abort() // nobody reads any more: frames that wait for room wait in vain
	}
	err := b.stopIngress()
	var gaveUp *ingress.AbortError
	if errors.As(err, &gaveUp) {
		err = nil // the run has failed before, and says why
	}
	if b.client != nil {
		if closing := b.client.Close(); !errors.Is(closing, os.ErrClosed) {
			err = errors.Join(err, closing)
		}
	}
	err = errors.Join(err, b.stopBroker())
	if b.dir != "" {
		err = errors.Join(err, os.RemoveAll(b.dir))
	}
	return err
}
