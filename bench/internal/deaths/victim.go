package deaths

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/ring"
)

// Victim is the whole of a process that Run starts: it publishes until it stops at the point that it is armed with. The end of
// its standard input is its parent's death.
func Victim(socket, point string) error {
	ctx := context.Background()
	bus, err := client.Dial(ctx, client.Options{Socket: socket, Name: "victim", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	lane, err := bus.Lane(ctx, topic, client.PublisherOptions{Name: "victim"})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return nil // nobody needs it
	}
	go func() {
		_, _ = in.ReadString('\n')
		os.Exit(4)
	}()
	payload := make([]byte, 700)
	for {
		switch point {
		case ring.FailMidBatch:
			_, err = lane.PublishBatch(ctx, [][]byte{payload, payload, payload})
		case ring.FailBeforeRing:
			time.Sleep(30 * time.Millisecond) // longer than the bounded sleep: the subscriber sleeps without a bound
			fallthrough
		default:
			err = lane.Publish(ctx, payload)
		}
		if err != nil {
			return err
		}
	}
}
