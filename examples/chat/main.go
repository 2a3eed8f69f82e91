// Chat is a program with chat rooms in the browser. Each room is a topic. An egress keeps what was said last, and sends what is
// said to all who are in the room; the web server is only a bridge from WebSocket to TCP and back. So processes of the host take
// part without any web: they publish to the room's topic, or subscribe to it.
//
//	hugebus broker --socket /tmp/h.sock &
//	HUGEBUS_SOCKET=/tmp/h.sock go run ./examples/chat 127.0.0.1:8080 lobby garden
//	xdg-open 'http://127.0.0.1:8080/?room=garden&name=ann'
//	HUGEBUS_SOCKET=/tmp/h.sock hugebus sub chat.garden
//
// A message is a line of JSON: {"name":"ann","text":"hello"}.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/client/egress"
)

//go:embed page.html
var page []byte

// A room is one topic with an egress.
type room struct {
	lane *client.Lane
	say  sync.Mutex // a lane is for one goroutine at a time
	out  *egress.Egress
}

func main() {
	address, names := "127.0.0.1:0", []string{"lobby"}
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	if len(os.Args) > 2 {
		names = os.Args[2:]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bus, err := client.Dial(ctx, client.Options{})
	check(err)
	defer bus.Close()

	rooms := make(map[string]*room)
	var serving sync.WaitGroup
	for _, name := range names {
		r, err := open(ctx, bus, name)
		check(err)
		rooms[name] = r
		fmt.Println(name, "on", r.out.Addr())
		serving.Go(func() { check(r.out.Serve(ctx)) })
	}

	web := http.NewServeMux()
	web.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }) // the browser may be gone
	web.Handle("GET /room/{name}", bridge(ctx, rooms))
	l, err := net.Listen("tcp", address)
	check(err)
	fmt.Printf("chat on http://%s\n", l.Addr())
	server := &http.Server{Handler: web, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		check(err)
	}
	serving.Wait()
}

// open makes a room: whoever comes in gets the last 64 KiB that were said.
func open(ctx context.Context, bus *client.Client, name string) (*room, error) {
	topic := "chat." + name
	lane, err := bus.Lane(ctx, topic, client.PublisherOptions{})
	if err != nil {
		return nil, err
	}
	out, err := egress.New(ctx, bus, topic, egress.Options{Start: client.Earliest()},
		egress.Config{Listen: "127.0.0.1:0", Codec: "line", History: 64 << 10})
	return &room{lane: lane, out: out}, err
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
