package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	testutil.Register("crowdedclient", crowdedClientRole)
	testutil.Register("crowdedbroker", crowdedBrokerRole)
}

// openFiles is how many descriptors this process has.
func openFiles() int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return len(all) - 1 // that of the look itself
}

// crowd opens files until only room more can be had.
func crowd(room int) (files []*os.File, err error) {
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			break
		}
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	for range room {
		_ = files[len(files)-1].Close()
		files = files[:len(files)-1]
	}
	return files, nil
}

func leave(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// crowdedClientRole attaches with too few descriptors left, then with enough, and says what it got.
func crowdedClientRole(args []string) {
	limit := syscall.Rlimit{Cur: 100, Max: 100}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.Dial(context.Background(), client.Options{Socket: args[0], Logger: quietLog()})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	attach := func(kind string) (func() error, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		switch kind {
		case "publisher":
			l, err := c.Lane(ctx, args[1], client.PublisherOptions{})
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		case "subscriber":
			s, err := c.Subscriber(ctx, args[1], client.SubscriberOptions{})
			if err != nil {
				return nil, err
			}
			return s.Close, nil
		}
		g, err := c.Group(ctx, args[1], "g", client.GroupOptions{})
		if err != nil {
			return nil, err
		}
		return g.Close, nil
	}
	for {
		var kind string
		var room int
		if _, err := fmt.Scan(&kind, &room); err != nil {
			return
		}
		before := openFiles()
		files, err := crowd(room)
		if err != nil {
			fmt.Println(err)
			return
		}
		done, err := attach(kind)
		leave(files)
		if err == nil {
			err = done()
			fmt.Println("attached", err, openFiles()-before)
			continue
		}
		fmt.Printf("%d more files, %v\n", openFiles()-before, err)
	}
}

// TestClientWithAFullDescriptorTable: what cannot be received is an error that names the limit, the topic is left as it was, nothing
// leaks, and with room the next one attaches.
func TestClientWithAFullDescriptorTable(t *testing.T) {
	w := newWorld(t)
	topic := w.topic(t, client.TopicOptions{Publishers: 2, Subscribers: 3})
	p := testutil.Start(t, "crowdedclient", w.socket, topic)
	p.Expect("ready")
	for _, kind := range []string{"publisher", "subscriber", "member"} {
		attached := false
		for room := 0; room <= 16 && !attached; room++ {
			p.Send(kind + " " + strconv.Itoa(room))
			line := p.Line()
			if attached = line == "attached <nil> 0"; !attached && (!strings.HasPrefix(line, "0 more files, ") || !strings.Contains(line, "RLIMIT_NOFILE")) {
				t.Errorf("%s with room for %d: %s", kind, room, line)
			}
			w.attached(t, topic, 0, 0)
		}
		if !attached {
			t.Errorf("%s: not attached with room for 16", kind)
		}
	}
	if info := w.info(t, topic); info.Repairs != 0 || info.Violations != 0 {
		t.Errorf("%+v", info)
	}
}

// crowdedBrokerRole serves a broker that fills its descriptor table when it is told, to a room, and leaves it again.
func crowdedBrokerRole(args []string) {
	limit := syscall.Rlimit{Cur: 200, Max: 200}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		fmt.Println(err)
		return
	}
	b, err := broker.New(broker.Config{Socket: args[0], Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), GroupLinger: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		if err := b.Serve(context.Background()); err != nil {
			fmt.Println(err)
		}
	}()
	fmt.Println("ready")
	for {
		var room int
		if _, err := fmt.Scan(&room); err != nil {
			return
		}
		before := openFiles()
		files, err := crowd(room)
		fmt.Println("crowded", err)
		var line string
		if _, err := fmt.Scan(&line); err != nil {
			return
		}
		leave(files)
		fmt.Println("free", openFiles()-before)
	}
}

// TestBrokerWithAFullDescriptorTable: it refuses what it cannot do, with the limit's name, leaves nothing of it behind, and goes on to serve
// those who are attached.
func TestBrokerWithAFullDescriptorTable(t *testing.T) {
	w, b := brokerProcessOf(t, "crowdedbroker")
	topic := w.topic(t, client.TopicOptions{})
	l, reader := w.lane(t, topic), w.subscriber(t, topic, client.SubscriberOptions{})
	made := false
	for room := 0; room < 12; room++ {
		b.Send(strconv.Itoa(room))
		b.Expect("crowded <nil>")
		publish(t, l, "f1")
		want(t, "a full table", drain(t, reader), "f1")
		_, cerr := w.c.CreateTopic(t.Context(), "more", client.TopicOptions{Capacity: 4096})
		_, serr := w.c.Subscriber(t.Context(), topic, client.SubscriberOptions{Name: "second"})
		_, lerr := w.c.Lane(t.Context(), topic, client.PublisherOptions{Name: "second"})
		for what, err := range map[string]error{"create": cerr, "subscribe": serr, "publish": lerr} {
			if err != nil && !strings.Contains(err.Error(), "too many open files") {
				t.Errorf("%s with room for %d: %v", what, room, err)
			}
			if err != nil && !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
				t.Errorf("%s with room for %d: %v names no limit", what, room, err)
			}
		}
		b.Send("go")
		if cerr == nil {
			made = true
			if err := w.c.RemoveTopic(t.Context(), "more"); err != nil {
				t.Error(err)
			}
		}
		b.Line() // free, and how many more it has: the topic's own may be on their way
		if made && room > 3 {
			break
		}
	}
	if !made {
		t.Error("no topic was made with room for 12")
	}
}

// TestExhaustedSlots: each kind has an error that says how many there are and what to do, and one that leaves makes room for the next.
func TestExhaustedSlots(t *testing.T) {
	w := newWorld(t)
	topic := w.topic(t, client.TopicOptions{Publishers: 2, Subscribers: 3, Groups: 1})
	attach := map[string]func() (func() error, error){
		"publisher": func() (func() error, error) {
			l, err := w.c.Lane(t.Context(), topic, client.PublisherOptions{})
			if err != nil {
				return nil, err
			}
			return l.Close, nil
		},
		"subscriber": func() (func() error, error) {
			s, err := w.c.Subscriber(t.Context(), topic, client.SubscriberOptions{})
			if err != nil {
				return nil, err
			}
			return s.Close, nil
		},
		"member": func() (func() error, error) {
			g, err := w.c.Group(t.Context(), topic, "g", client.GroupOptions{})
			if err != nil {
				return nil, err
			}
			return g.Close, nil
		},
	}
	for kind, slots := range map[string]int{"publisher": 2, "subscriber": 3, "member": 3} {
		var held []func() error
		for range slots {
			done, err := attach[kind]()
			if err != nil {
				t.Fatal(kind, err)
			}
			held = append(held, done)
		}
		word := strings.Replace(kind, "member", "subscriber", 1)
		for range 3 {
			_, err := attach[kind]()
			if !errors.Is(err, client.ErrNoSlot) || !strings.Contains(err.Error(), fmt.Sprintf("all %d %s slots are taken", slots, word)) || !strings.Contains(err.Error(), "more slots") {
				t.Errorf("%s: %v", kind, err)
			}
		}
		if err := held[0](); err != nil {
			t.Error(err)
		}
		done, err := attach[kind]()
		if err != nil {
			t.Errorf("%s when there is room again: %v", kind, err)
		} else {
			held[0] = done
		}
		for _, done := range held {
			if err := done(); err != nil {
				t.Error(err)
			}
		}
		w.attached(t, topic, 0, 0)
	}
	g := w.member(t, topic, "one")
	if _, err := w.c.Group(t.Context(), topic, "two", client.GroupOptions{}); !errors.Is(err, client.ErrNoSlot) || !strings.Contains(err.Error(), "all 1 group slots are taken") {
		t.Errorf("second group: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	w.member(t, topic, "two")
}

// TestHugePagesExhausted: strict is an error that names what is missing, auto takes what there is, and the name is free afterwards.
func TestHugePagesExhausted(t *testing.T) {
	w := newWorld(t)
	// More than any host has reserved, and less than the broker's room for ordinary pages.
	for _, pages := range []string{"1GiB", "2MiB"} {
		_, err := w.c.CreateTopic(t.Context(), "strict", client.TopicOptions{Capacity: 1 << 40, Pages: pages})
		if !errors.Is(err, client.ErrNoMemory) || !strings.Contains(err.Error(), "nr_hugepages") && !strings.Contains(err.Error(), "hugepages=") {
			t.Errorf("%s: %v", pages, err)
		}
	}
	if _, err := w.c.Topic(t.Context(), "strict"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a topic that could not be made: %v", err)
	}
	if _, err := w.c.CreateTopic(t.Context(), "strict", client.TopicOptions{Capacity: 4096, Pages: "auto"}); err != nil {
		t.Error(err)
	}
}
