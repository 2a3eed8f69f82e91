// Quickstart publishes a few frames to a topic and reads them back.
//
//	hugebus broker --socket /tmp/h.sock &
//	HUGEBUS_SOCKET=/tmp/h.sock go run ./examples/quickstart
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/hugebus/hugebus/client"
)

func main() {
	ctx := context.Background()
	bus, err := client.Dial(ctx, client.Options{}) // the socket in $HUGEBUS_SOCKET, or the default one
	check(err)
	defer bus.Close()

	sub, err := bus.Subscriber(ctx, "greetings", client.SubscriberOptions{})
	check(err)
	pub, err := bus.Publisher(ctx, "greetings", client.PublisherOptions{})
	check(err)

	for _, word := range []string{"hello", "shared", "memory"} {
		check(pub.Publish(ctx, []byte(word)))
	}
	for range 3 {
		frame, err := sub.Next(ctx)
		check(err)
		fmt.Printf("%s at position %d\n", frame.Payload, frame.Position)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
