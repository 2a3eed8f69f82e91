// Push is a program that makes up prices and pushes them to any number of TCP clients. The publisher knows nothing of them: it
// publishes to a topic, and an egress sends what is published to whoever is connected.
//
//	hugebus broker --socket /tmp/h.sock &
//	HUGEBUS_SOCKET=/tmp/h.sock go run ./examples/push 127.0.0.1:7071
//	nc 127.0.0.1 7071
//
// Both are in one program here. As two they are the same: any process of the host may publish, and `hugebus egress` is the
// egress as a command.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/egress"
)

func main() {
	address := "127.0.0.1:0"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bus, err := client.Dial(ctx, client.Options{})
	check(err)
	defer bus.Close()

	// Clients that read slowly hold up neither the publisher nor each other: beyond MaxLag they are skipped forward, and told so.
	out, err := egress.New(ctx, bus, "prices", egress.Options{}, egress.Config{Listen: address, Codec: "line", MaxLag: 1 << 20})
	check(err)
	fmt.Println("listening on", out.Addr())
	served := make(chan error, 1)
	go func() { served <- out.Serve(ctx) }()

	if err := publish(ctx, bus); !errors.Is(err, context.Canceled) {
		check(err)
	}
	check(<-served)
}

// publish publishes a price every 10 ms until ctx ends.
func publish(ctx context.Context, bus *client.Client) error {
	lane, err := bus.Lane(ctx, "prices", client.PublisherOptions{})
	if err != nil {
		return err
	}
	price := 100.0
	for n := 1; ; n++ {
		price += rand.NormFloat64() / 10
		if err := lane.Publish(ctx, fmt.Appendf(nil, "%d %.2f", n, price)); err != nil {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
