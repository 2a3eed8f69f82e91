// Ingress is a program that takes lines over TCP, publishes each as a frame, and prints
// what arrives on the topic.
//
//	hugebus broker --socket /tmp/h.sock &
//	HUGEBUS_SOCKET=/tmp/h.sock go run ./examples/ingress 127.0.0.1:7070
//	seq 1 5 | nc -N 127.0.0.1 7070
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/ingress"
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

	sub, err := bus.Subscriber(ctx, "lines", client.SubscriberOptions{})
	check(err)
	in, err := ingress.New(ctx, bus, "lines", ingress.Config{Listen: address, Codec: "line"})
	check(err)
	fmt.Println("listening on", in.Addr())
	served := make(chan error, 1)
	go func() { served <- in.Serve(ctx) }()

	err = sub.Run(ctx, func(f client.Frame) error {
		_, err := fmt.Printf("%s\n", f.Payload)
		return err
	})
	if !errors.Is(err, context.Canceled) {
		check(err)
	}
	check(<-served)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
