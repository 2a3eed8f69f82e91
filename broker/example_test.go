package broker_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hugebus/hugebus/broker"
)

// A broker in a program of one's own, with a topic made at start.
func Example() {
	dir, err := os.MkdirTemp("", "hugebus")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	b, err := broker.New(broker.Config{
		Socket: filepath.Join(dir, "h.sock"),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Topics: []broker.TopicConfig{{Name: "orders", Options: broker.TopicOptions{Capacity: 1 << 20}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("serves", filepath.Base(b.Addr()))
	ctx, stop := context.WithCancel(context.Background())
	stop() // SIGTERM, say
	fmt.Println(b.Serve(ctx))
	// Output:
	// serves h.sock
	// <nil>
}
