// Workers shares the frames of a topic among a group of workers: each frame goes to one
// of them. One frame is refused once, as a worker does that cannot finish its
// work, and comes again, marked.
//
//	hugebus broker --socket /tmp/h.sock &
//	HUGEBUS_SOCKET=/tmp/h.sock go run ./examples/workers
//
// The workers are goroutines here; processes on the same host join the same way.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/hugebus/hugebus/client"
)

const workers, jobs = 3, 30

func main() {
	ctx := context.Background()
	bus, err := client.Dial(ctx, client.Options{})
	check(err)

	var done, stopped sync.WaitGroup // of jobs, of workers
	done.Add(jobs)
	for id := range workers {
		group, err := bus.Group(ctx, "jobs", "workers", client.GroupOptions{Name: fmt.Sprint("worker-", id)})
		check(err)
		stopped.Go(func() { work(ctx, id, group, &done) })
	}

	pub, err := bus.Publisher(ctx, "jobs", client.PublisherOptions{})
	check(err)
	for i := range jobs {
		check(pub.Publish(ctx, fmt.Appendf(nil, "job %d", i)))
	}
	done.Wait()
	check(bus.Close()) // ends the workers, too
	stopped.Wait()
}

var errNotNow = errors.New("not now")

// work handles jobs until the group is closed.
func work(ctx context.Context, id int, group *client.Group, done *sync.WaitGroup) {
	for {
		err := group.Run(ctx, func(f client.Frame) error {
			if string(f.Payload) == "job 7" && f.Redelivered == 0 {
				return errNotNow // it goes back into the group
			}
			fmt.Printf("worker %d: %s (redelivered %d times)\n", id, f.Payload, f.Redelivered)
			done.Done()
			return nil
		})
		if err != errNotNow {
			return // os.ErrClosed
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
