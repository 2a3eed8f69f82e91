package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

// starts are the first positions that suites run with: 0, one whose laps meet 2^63, where
// signed differences change their sign, and one whose first lap meets 2^64.
var starts = []Position{0, 1<<63 - 4096 - 640, 1<<64 - 4096 - 640}

// eachStart runs a test once for every first position.
func eachStart(t *testing.T, test func(t *testing.T, start Position)) {
	t.Helper()
	for _, start := range starts {
		t.Run(fmt.Sprintf("start=%#x", uint64(start)), func(t *testing.T) { test(t, start) })
	}
}

// heapMemory is zeroed memory on the Go heap for a ring like c.
func heapMemory(tb testing.TB, c Config) Memory {
	tb.Helper()
	sizes, err := c.Footprint()
	if err != nil {
		tb.Fatal(err)
	}
	return Memory{
		Ctl:     testutil.AlignedBytes(int(sizes.Ctl)),
		Cursors: testutil.AlignedBytes(int(sizes.Cursors)),
		Data:    testutil.AlignedBytes(int(sizes.Data)),
	}
}

// heap makes a ring on the Go heap.
func heap(tb testing.TB, c Config) *Ring {
	tb.Helper()
	r, err := Format(heapMemory(tb, c), c)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// small is a Config for tests: the smallest ring, few slots.
func small(start Position) Config {
	return Config{Capacity: MinCapacity, Publishers: 4, Subscribers: 8, Groups: 2, Key: 0x1234567, Start: start}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func wantErr(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Fatalf("error %v, want %v", err, want)
	}
}

func publisher(tb testing.TB, r *Ring, slot int) *Publisher {
	tb.Helper()
	must(tb, r.AdmitPublisher(slot))
	p, err := r.Publisher(slot, PublisherOptions{})
	must(tb, err)
	return p
}

// never is a wait for joins that find nothing to wait for.
func never() error { return errors.New("the test does not expect to wait") }

func subscriber(tb testing.TB, r *Ring, slot int, c SubscriberConfig, start Start) *Subscriber {
	tb.Helper()
	must(tb, r.AdmitSubscriber(slot, c))
	s, err := r.Subscriber(slot, SubscriberOptions{})
	must(tb, err)
	must(tb, s.Join(start, never))
	return s
}

func reliable(tb testing.TB, r *Ring, slot int) *Subscriber {
	tb.Helper()
	return subscriber(tb, r, slot, SubscriberConfig{Policy: Reliable}, Latest())
}

func lossy(tb testing.TB, r *Ring, slot int) *Subscriber {
	tb.Helper()
	return subscriber(tb, r, slot, SubscriberConfig{Policy: Lossy}, Latest())
}

func member(tb testing.TB, r *Ring, group, slot int) *Member {
	tb.Helper()
	id, err := r.AdmitMember(group, slot)
	must(tb, err)
	m, err := r.Member(group, id, SubscriberOptions{})
	must(tb, err)
	return m
}

// pattern is what messages are cut from.
var pattern = func() []byte {
	b := make([]byte, 1<<16)
	for i := range b {
		b[i] = byte(i*31 + i>>8)
	}
	return b
}()

// message is a payload of n bytes that says which one it is, as far as n allows.
func message(id uint64, n int) []byte {
	b := make([]byte, n)
	for at := 0; at < n; {
		at += copy(b[at:], pattern[id%4093:])
	}
	if n >= 8 {
		binary.LittleEndian.PutUint64(b, id)
	}
	return b
}

// got is a copy of a frame.
type got struct {
	payload     string
	at          Position
	source      uint16
	redelivered uint16
}

func copyOf(f Frame) got { return got{string(f.Payload), f.Position, f.Source, f.Redelivered} }

type poller interface {
	Poll(limit int, fn func(Frame) error) (int, error)
}

type pollFunc = func(limit int, fn func(Frame) error) (int, error)

// byBatch is s.Poll by way of PollBatch, for handlers that refuse nothing.
func byBatch(s *Subscriber) pollFunc {
	return func(limit int, fn func(Frame) error) (int, error) {
		return s.PollBatch(limit, func(frames []Frame) error {
			for _, f := range frames {
				if err := fn(f); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// poll is one Poll, and checks that the count is that of the calls.
func poll(tb testing.TB, p poller, limit int) ([]got, error) {
	tb.Helper()
	var frames []got
	n, err := p.Poll(limit, func(f Frame) error {
		frames = append(frames, copyOf(f))
		return nil
	})
	if n != len(frames) {
		tb.Fatalf("Poll says %d frames and handed out %d", n, len(frames))
	}
	return frames, err
}

// drain polls until nothing comes, and fails on an error.
func drain(tb testing.TB, p poller) []got {
	tb.Helper()
	var all []got
	for {
		frames, err := poll(tb, p, 16)
		must(tb, err)
		if len(frames) == 0 {
			return all
		}
		all = append(all, frames...)
	}
}

// fill publishes payloads of n bytes until the ring is full, and says how many.
func fill(tb testing.TB, p *Publisher, n int) int {
	tb.Helper()
	for i := 0; ; i++ {
		switch err := p.TryPublish(message(uint64(i), n)); {
		case err == ErrBackpressure:
			return i
		case err != nil:
			tb.Fatal(err)
		case i > 1<<20:
			tb.Fatal("the ring never gets full")
		}
	}
}

// payloads are the payloads of frames.
func payloads(frames []got) []string {
	var all []string
	for _, f := range frames {
		all = append(all, f.payload)
	}
	return all
}

// counter is a Doorbell that counts.
type counter struct{ n int }

func (c *counter) Ring() error { c.n++; return nil }

// watchdog fails the program when a test hangs: it is long, and only catches hangs.
func watchdog(tb testing.TB, d time.Duration) {
	t := time.AfterFunc(d, func() {
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("%s hangs for %v:\n%s", tb.Name(), d, buf[:runtime.Stack(buf, true)]))
	})
	tb.Cleanup(func() { t.Stop() })
}

func heapBytes(n int) []byte { return testutil.AlignedBytes(n) }
