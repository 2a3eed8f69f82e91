package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/hugebus/hugebus/broker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

func init() { testutil.Register("scribbler", scribblerRole) }

// scribblerRole attaches as a subscriber, by hand, and writes over all that it can write, for ever.
func scribblerRole(args []string) {
	if err := scribbleOver(args[0], args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func scribbleOver(socket, topic string) error {
	conn, err := control.Dial(context.Background(), socket)
	if err != nil {
		return err
	}
	if _, err := conn.SayHello(control.NewHello(ring.LayoutVersion)); err != nil {
		return err
	}
	p, err := attachSubscriber(conn, 2, topic)
	if err != nil {
		return err
	}
	cursors, err := shm.Open(p.Files[control.FileCursors], true)
	if err != nil {
		return err
	}
	ctl, err := shm.Open(p.Files[control.FileCtl], false)
	if err != nil {
		return err
	}
	fmt.Println("scribbling")
	rng := rand.New(rand.NewPCG(1, uint64(os.Getpid())))
	words := cursors.Bytes()
	for {
		tail := wordAt(ctl.Bytes(), 1024).Load()
		value := rng.Uint64()
		switch rng.IntN(5) {
		case 0: // one that is possible, and wrong
			value = tail - rng.Uint64N(8192)&^63 | rng.Uint64N(4)
		case 1:
			value = 1 << rng.IntN(64)
		case 2:
			value = 0
		}
		wordAt(words, rng.IntN(len(words)/8)*8).Store(value)
		if rng.IntN(3) == 0 { // the first words matter most
			wordAt(words, rng.IntN(256)*8).Store(value)
		}
		for range 200 { // others want to run as well
			value *= 3
		}
	}
}

// TestScribblingSubscriber: publishers of its topic go on, other topics notice nothing, the broker says what it found, and
// when it is gone everything is as it should be, for those who attach again.
func TestScribblingSubscriber(t *testing.T) {
	w := newWorldOf(t, broker.Config{StuckClaim: 200 * time.Millisecond})
	hit, safe := w.topic(t, client.TopicOptions{}), w.topic(t, client.TopicOptions{})
	l, m := w.lane(t, hit), w.lane(t, safe)
	victim, reader := w.subscriber(t, hit, client.SubscriberOptions{}), w.subscriber(t, safe, client.SubscriberOptions{})
	g := w.member(t, safe, "g")
	p := testutil.Start(t, "scribbler", w.socket, hit)
	p.Expect("scribbling")
	told := false
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // against hanging only
	defer cancel()
	for i := 0; i < 3000 || w.info(t, hit).Violations < 50; i++ {
		name := fmt.Sprint("n", i)
		if err := l.Publish(ctx, text(name, 100)); err != nil {
			t.Fatalf("publisher of the topic: %v", err)
		}
		if !told {
			_, err := victim.Poll(8, func(client.Frame) error { return nil })
			if told = err != nil; told && !errors.Is(err, client.ErrExpelled) && !errors.Is(err, client.ErrCorrupt) {
				t.Errorf("the other subscriber of the topic: %v", err)
			}
		}
		publish(t, m, name)
		want(t, "the other topic", drain(t, reader), name)
		want(t, "its group", drain(t, g), name)
	}
	if info := w.info(t, safe); info.Violations != 0 || info.Repairs != 0 {
		t.Errorf("%+v", info)
	}
	p.Kill()
	if err := victim.Close(); err != nil {
		t.Error(err)
	}
	if info := w.attached(t, hit, 1, 0); info.Expulsions == 0 {
		t.Errorf("nobody was expelled: %+v", info)
	}
	again, group := w.subscriber(t, hit, client.SubscriberOptions{}), w.member(t, hit, "new")
	for i := range 500 {
		name := fmt.Sprint("m", i)
		if err := l.Publish(ctx, text(name, 1)); err != nil {
			t.Fatal(err)
		}
		want(t, "a new subscriber", drain(t, again), name)
		want(t, "a new group", drain(t, group), name)
	}
}
