package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
)

// connect stands for `hugebus broker` and a client.Dial: a broker in this process, on a
// socket of its own, and a client of it.
func connect() (*client.Client, func()) {
	dir, err := os.MkdirTemp("", "hugebus")
	check(err)
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	b, err := broker.New(broker.Config{
		Socket: filepath.Join(dir, "h.sock"), Logger: quiet,
		Defaults: broker.TopicOptions{Capacity: 1 << 20},
	})
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx) }()
	bus, err := client.Dial(ctx, client.Options{Socket: b.Addr(), Logger: quiet})
	check(err)
	return bus, func() {
		if err := bus.Close(); !errors.Is(err, os.ErrClosed) {
			check(err)
		}
		stop()
		check(<-served)
		check(os.RemoveAll(dir))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient() {
	bus, closeBus := connect() // client.Dial(ctx, client.Options{}) where a broker runs
	defer closeBus()
	ctx := context.Background()

	info, err := bus.CreateTopic(ctx, "orders", client.TopicOptions{Capacity: 1 << 20})
	check(err)
	fmt.Printf("%s holds %d bytes, payloads up to %d\n", info.Name, info.Capacity, info.MaxPayload)

	_, err = bus.CreateTopic(ctx, "orders", client.TopicOptions{})
	fmt.Println("again:", errors.Is(err, client.ErrTopicExists))
	// Output:
	// orders holds 1048576 bytes, payloads up to 262128
	// again: true
}

func ExamplePublisher() {
	bus, closeBus := connect()
	defer closeBus()
	ctx := context.Background()

	sub, err := bus.Subscriber(ctx, "orders", client.SubscriberOptions{})
	check(err)
	pub, err := bus.Publisher(ctx, "orders", client.PublisherOptions{})
	check(err)
	check(pub.Publish(ctx, []byte("one"))) // waits while the topic is full
	n, err := pub.PublishBatch(ctx, [][]byte{[]byte("two"), []byte("three")})
	check(err)
	fmt.Println(n, "in a batch")
	for range 3 {
		frame, err := sub.Next(ctx)
		check(err)
		fmt.Printf("%s\n", frame.Payload)
	}
	// Output:
	// 2 in a batch
	// one
	// two
	// three
}

func ExampleLane() {
	bus, closeBus := connect()
	defer closeBus()
	ctx := context.Background()

	lane, err := bus.Lane(ctx, "orders", client.PublisherOptions{})
	check(err)
	defer lane.Close()
	for i := 0; ; i++ {
		err := lane.TryPublish(make([]byte, lane.MaxPayload()+i))
		if errors.Is(err, client.ErrTooLarge) {
			fmt.Println(err)
			return
		}
		check(err)
	}
	// Output:
	// client: payload of 262129 bytes is above the maximum of 262128 of topic "orders": a topic created with a capacity of 2097152 bytes takes it
}

func ExampleClaim() {
	bus, closeBus := connect()
	defer closeBus()
	ctx := context.Background()

	sub, err := bus.Subscriber(ctx, "orders", client.SubscriberOptions{})
	check(err)
	pub, err := bus.Publisher(ctx, "orders", client.PublisherOptions{})
	check(err)
	claim, err := pub.Claim(ctx, 100) // room in the ring itself
	check(err)
	text := fmt.Appendf(claim.Payload[:0], "written in place, %d of %d bytes", 38, len(claim.Payload))
	check(claim.CommitN(len(text)))
	frame, err := sub.Next(ctx)
	check(err)
	fmt.Printf("%s\n", frame.Payload)
	// Output:
	// written in place, 38 of 100 bytes
}

func ExampleSubscriber() {
	bus, closeBus := connect()
	defer closeBus()
	ctx := context.Background()

	pub, err := bus.Publisher(ctx, "prices", client.PublisherOptions{})
	check(err)
	for i := range 3 {
		check(pub.Publish(ctx, fmt.Appendf(nil, "price %d", i)))
	}
	sub, err := bus.Subscriber(ctx, "prices", client.SubscriberOptions{
		Policy: client.Lossy, // never holds publishers up
		Start:  client.Earliest(),
	})
	check(err)
	seen := 0
	for frame, err := range sub.Frames(ctx) {
		var gap *client.GapError
		if errors.As(err, &gap) {
			fmt.Println("missed", gap.Bytes(), "bytes")
			continue
		}
		check(err)
		fmt.Printf("%s at %d\n", frame.Payload, frame.Position)
		if seen++; seen == 3 {
			break
		}
	}
	// Output:
	// price 0 at 0
	// price 1 at 64
	// price 2 at 128
}

func ExampleGroup() {
	bus, closeBus := connect()
	defer closeBus()
	ctx := context.Background()

	worker, err := bus.Group(ctx, "jobs", "workers", client.GroupOptions{})
	check(err)
	pub, err := bus.Publisher(ctx, "jobs", client.PublisherOptions{})
	check(err)
	check(pub.Publish(ctx, []byte("job")))

	failed := errors.New("failed")
	_, err = worker.Poll(1, func(f client.Frame) error { return failed }) // not acknowledged
	fmt.Println(err)
	_, err = worker.Poll(1, func(f client.Frame) error {
		fmt.Printf("%s, redelivered %d times\n", f.Payload, f.Redelivered)
		return nil // acknowledged
	})
	check(err)
	// Output:
	// failed
	// job, redelivered 1 times
}
