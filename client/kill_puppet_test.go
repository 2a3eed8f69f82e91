package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() { testutil.Register("puppet", puppetRole) }

// A puppet is another process that does what it is told, one line at a time.
type puppet struct {
	*testutil.Proc
	t testing.TB
}

// puppet starts one that works on topic. failpoints arms it, or is empty.
func (w *world) puppet(t testing.TB, topic, failpoints string) *puppet {
	t.Helper()
	p := &puppet{t: t, Proc: testutil.Launch(t, testutil.Child{
		Binary: w.binary, Role: "puppet", Args: []string{w.socket, topic}, Env: []string{failpoint.Env + "=" + failpoints},
	})}
	p.Expect("ready")
	return p
}

// do sends a command and checks the reply.
func (p *puppet) do(command, reply string) {
	p.t.Helper()
	p.Send(command)
	p.Expect(reply)
}

// stops sends a command at which the puppet stops, at a failpoint.
func (p *puppet) stops(command, point string) {
	p.t.Helper()
	p.Send(command)
	p.AtFailpoint(point)
}

// killAll kills puppets at the same time, as far as that can be.
func killAll(puppets ...*puppet) {
	for _, p := range puppets {
		p.Signal(os.Kill)
	}
	for _, p := range puppets {
		p.Wait()
	}
}

// stage is what a puppet holds.
type stage struct {
	ctx    context.Context
	c      *client.Client
	topic  string
	lanes  []*client.Lane
	claims map[int]client.Claim
	sub    *client.Subscriber
	group  *client.Group
}

// puppetRole answers each command with one line, "ok" if there is nothing else to say:
//
//	lane                     attaches a lane; they are numbered from 0
//	publish LANE WORD SIZE   try LANE WORD SIZE
//	batch LANE WORD SIZE N   payloads WORD.0 to WORD.N-1
//	claim LANE WORD SIZE     commit LANE      abort LANE
//	trickle LANE WORD        publishes WORD1, WORD2, … every 30 ms, for ever, and says each when it is published
//	sub POLICY BYTES         BYTES bound the lag, for evict
//	member GROUP
//	poll N                   words, gap FROM TO, evicted, or nothing
//	wait                     until there is something to poll
//	follow                   waits and polls, for ever, and says each word
//	hold N                   polls, says "holding WORD" for the first frame, and never finishes it
func puppetRole(args []string) {
	s := &stage{ctx: context.Background(), topic: args[1], claims: map[int]client.Claim{}}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	var err error
	if s.c, err = client.Dial(s.ctx, client.Options{Socket: args[0], Name: "puppet", Logger: quiet}); err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		reply, err := s.obey(words[0], append(words[1:], make([]string, 4)...))
		if err != nil {
			reply = "error " + err.Error()
		}
		fmt.Println(reply)
	}
}

func (s *stage) obey(command string, args []string) (reply string, err error) {
	n, _ := strconv.Atoi(args[0])
	switch command {
	case "lane":
		var l *client.Lane
		l, err = s.c.Lane(s.ctx, s.topic, client.PublisherOptions{Wait: client.WaitSleep})
		s.lanes = append(s.lanes, l)
	case "publish", "try", "batch", "claim", "commit", "abort", "trickle":
		err = s.publish(command, n, args[1:])
	case "sub":
		o := client.SubscriberOptions{Start: client.Earliest(), Wait: client.WaitSleep}
		o.Policy = map[string]client.Policy{"reliable": client.Reliable, "lossy": client.Lossy, "evict": client.Evict}[args[0]]
		o.EvictLag, _ = strconv.ParseInt(args[1], 10, 64)
		s.sub, err = s.c.Subscriber(s.ctx, s.topic, o)
	case "member":
		s.group, err = s.c.Group(s.ctx, s.topic, args[0], client.GroupOptions{Start: client.Earliest(), Wait: client.WaitSleep})
	case "poll":
		return s.poll(n)
	case "wait":
		err = s.from().Wait(s.ctx)
	case "follow":
		for err == nil {
			_, err = s.from().Poll(1, func(f client.Frame) error {
				fmt.Println(marked(f))
				return nil
			})
			if err == nil {
				err = s.from().Wait(s.ctx)
			}
		}
	case "hold":
		_, err = s.from().Poll(n, func(f client.Frame) error {
			fmt.Println("holding", marked(f))
			select {}
		})
	default:
		err = errors.New("unknown command " + command)
	}
	return "ok", err
}

func (s *stage) publish(command string, lane int, args []string) (err error) {
	l, word := s.lanes[lane], args[0]
	size, _ := strconv.Atoi(args[1])
	switch command {
	case "publish":
		return l.Publish(s.ctx, text(word, size))
	case "try":
		return l.TryPublish(text(word, size))
	case "batch":
		n, _ := strconv.Atoi(args[2])
		var payloads [][]byte
		for i := range n {
			payloads = append(payloads, text(fmt.Sprintf("%s.%d", word, i), size))
		}
		_, err = l.PublishBatch(s.ctx, payloads)
	case "claim":
		claim, err := l.Claim(s.ctx, size)
		if err != nil {
			return err
		}
		clear(claim.Payload)
		copy(claim.Payload, word)
		s.claims[lane] = claim
	case "commit":
		return s.claims[lane].Commit()
	case "abort":
		return s.claims[lane].Abort()
	case "trickle":
		tick := time.NewTicker(30 * time.Millisecond)
		for n := 1; ; n++ {
			<-tick.C
			if err := l.Publish(s.ctx, fmt.Appendf(nil, "%s%d", word, n)); err != nil {
				return err
			}
			fmt.Printf("%s%d\n", word, n)
		}
	}
	return err
}

// A poller is a Subscriber or a Group.
type poller interface {
	Poll(limit int, fn func(client.Frame) error) (int, error)
	Wait(ctx context.Context) error
}

func (s *stage) from() poller {
	if s.sub != nil {
		return s.sub
	}
	return s.group
}

func (s *stage) poll(n int) (string, error) {
	var words []string
	_, err := s.from().Poll(n, func(f client.Frame) error {
		words = append(words, marked(f))
		return nil
	})
	var gap *client.GapError
	switch {
	case errors.As(err, &gap):
		return fmt.Sprintf("gap %d %d", gap.From, gap.To), nil
	case errors.Is(err, client.ErrEvicted):
		return "evicted", nil
	}
	return strings.Join(words, " "), err
}
