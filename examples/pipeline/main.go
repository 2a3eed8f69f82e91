// Pipeline takes lines over TCP, has a group of workers turn each into a result, and sends the results to TCP clients:
//
//	TCP ─► ingress ─► topic "words" ─► group of workers ─► topic "counted" ─► egress ─► TCP
//
// Try it:
//
//	hugebus broker --socket /tmp/h.sock &
//	HUGEBUS_SOCKET=/tmp/h.sock go run ./examples/pipeline 127.0.0.1:7070 127.0.0.1:7071
//	nc 127.0.0.1 7071 &
//	ls / | nc -N 127.0.0.1 7070
//
// All parts are in one program here; in production each is a process of its own, and there are as many workers as there are cores.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/egress"
	"github.com/hugebus/hugebus/client/ingress"
)

const workers = 3

func main() {
	from, to := "127.0.0.1:0", "127.0.0.1:0"
	if len(os.Args) > 2 {
		from, to = os.Args[1], os.Args[2]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bus, err := client.Dial(ctx, client.Options{})
	check(err)
	defer bus.Close()

	// Last things first, so that nothing comes before there is somebody to take it.
	out, err := egress.New(ctx, bus, "counted", egress.Options{Start: client.Earliest()},
		egress.Config{Listen: to, Codec: "line", History: 1 << 20}) // who connects late gets the last MiB
	check(err)
	var running sync.WaitGroup
	running.Go(func() { check(out.Serve(ctx)) })
	for id := range workers {
		group, err := bus.Group(ctx, "words", "counters", client.GroupOptions{Name: fmt.Sprint("counter-", id)})
		check(err)
		results, err := bus.Lane(ctx, "counted", client.PublisherOptions{})
		check(err)
		running.Go(func() { work(ctx, id, group, results) })
	}
	in, err := ingress.New(ctx, bus, "words", ingress.Config{Listen: from, Codec: "line"})
	check(err)
	fmt.Println("words to", in.Addr())
	fmt.Println("results from", out.Addr())
	check(in.Serve(ctx))
	running.Wait()
}

// work turns words into results. A word is acknowledged once its result is published: a worker that dies in between leaves it
// to another one.
func work(ctx context.Context, id int, group *client.Group, results *client.Lane) {
	err := group.Run(ctx, func(f client.Frame) error {
		return results.Publish(ctx, fmt.Appendf(nil, "%s has %d bytes, says worker %d", f.Payload, len(f.Payload), id))
	})
	if !errors.Is(err, context.Canceled) {
		check(err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
