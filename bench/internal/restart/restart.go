// Package restart measures what a broker's death costs those who use it, and what many topics
// and clients cost the broker. The broker, its keeper and the load are processes of their own.
package restart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/keeper"
)

// Options say what to measure.
type Options struct {
	// Topics and Clients are how many there are beside the load. Each client publishes to one
	// topic: client i to topic i modulo Topics.
	Topics, Clients int
	// Kills is how often the broker is killed, and Span how long the load runs for each of them: half of it
	// without a broker. The load runs for Kills * Span / 2 without kills.
	Kills int
	Span  time.Duration
	// Broker and Load start this program as Broker and Load, for a socket.
	Broker, Load func(socket string) []string
	// Patience ends what hangs.
	Patience time.Duration
	// Say hears of progress; nil: nobody.
	Say func(what string)
}

// Times is a distribution.
type Times struct {
	Count               int64
	P50, P99, P999, Max time.Duration
	// HDR is the whole histogram, in ns, in the standard compressed form.
	HDR *report.Histogram `json:"hdr"`
}

func timesOf(h *report.Histogram) Times {
	p := h.Percentiles()
	return Times{
		Count: h.Count(), P50: time.Duration(p.P50), P99: time.Duration(p.P99), P999: time.Duration(p.P999), Max: time.Duration(p.Max), HDR: h,
	}
}

// A Result is what came of it.
type Result struct {
	Topics, Clients, Kills int
	// Create, Dial and Attach are the times of one topic, connection and lane each.
	Create, Dial, Attach Times
	// TopicBytes is the broker's own memory for one topic, beside the topic's segments, and
	// ClientBytes for one client with one lane; TopicFiles and ClientFiles are descriptors.
	TopicBytes, ClientBytes int64
	TopicFiles, ClientFiles float64
	// Quiet, Away and Anew are the times between two frames of the load's publisher: without kills, from each kill
	// until the next broker is started, and from there until the next kill.
	Quiet, Away, Anew Times
	// Frames is how many frames the load's subscriber has checked; each came, and in order.
	Frames uint64
	// Start is from the start of the next broker's process until it serves, and Return from
	// there until the last client has an answer from it.
	Start, Return Times
}

// Run measures.
func Run(ctx context.Context, o Options) (r Result, err error) {
	dir, err := os.MkdirTemp("", "hugebus-restart")
	if err != nil {
		return r, fmt.Errorf("restart: %w", err)
	}
	defer os.RemoveAll(dir)
	w := &world{Options: o, socket: filepath.Join(dir, "s")}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.startBroker(); err != nil {
		return r, err
	}
	r.Topics, r.Clients, r.Kills = o.Topics, o.Clients, o.Kills
	if err := w.fill(ctx, &r); err != nil {
		return r, err
	}
	return r, w.measure(ctx, &r)
}

// A world is a broker with its clients.
type world struct {
	Options
	socket  string
	broker  *child
	load    *child
	clients []*client.Client
}

func (w *world) say(format string, args ...any) {
	if w.Say != nil {
		w.Say(fmt.Sprintf(format, args...))
	}
}

// close ends what is still there: clients, load, broker, keeper.
func (w *world) close() error {
	var errs []error
	if w.load != nil {
		errs = append(errs, w.load.end())
	}
	for _, c := range w.clients {
		errs = append(errs, c.Close())
	}
	if w.broker == nil {
		return errors.Join(errs...)
	}
	errs = append(errs, w.broker.end())
	ctx, cancel := context.WithTimeout(context.Background(), w.Patience)
	defer cancel()
	if err := keeper.Shutdown(ctx, w.socket+keeper.SocketSuffix); !errors.Is(err, keeper.ErrNotRunning) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (w *world) startBroker() (err error) {
	w.broker, err = launch(w.Broker(w.socket), w.Patience)
	if err != nil {
		return fmt.Errorf("restart: broker: %w", err)
	}
	return nil
}

func (w *world) dial(ctx context.Context) (*client.Client, error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	return client.Dial(ctx, client.Options{Socket: w.socket, Name: "restart", Logger: quiet, WaitForBroker: w.Patience})
}

// fill makes topics and clients, one after the other, and notes what each costs.
func (w *world) fill(ctx context.Context, r *Result) error {
	create, dial, attach := report.NewHistogram(), report.NewHistogram(), report.NewHistogram()
	c, err := w.dial(ctx)
	if err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	w.clients = append(w.clients, c)
	empty, err := w.broker.usage()
	if err != nil {
		return err
	}
	small := client.TopicOptions{Capacity: 64 << 10, Pages: "4KiB"}
	for i := range w.Topics {
		began := time.Now()
		if _, err := c.CreateTopic(ctx, name(i), small); err != nil {
			return fmt.Errorf("restart: topic %d of %d: %w", i+1, w.Topics, err)
		}
		create.Record(time.Since(began).Nanoseconds())
	}
	w.say("%d topics", w.Topics)
	full, err := w.broker.usage()
	if err != nil {
		return err
	}
	for i := range w.Clients {
		began := time.Now()
		c, err := w.dial(ctx)
		if err != nil {
			return fmt.Errorf("restart: client %d of %d: %w", i+1, w.Clients, err)
		}
		w.clients = append(w.clients, c)
		connected := time.Now()
		if _, err := c.Lane(ctx, name(i%w.Topics), client.PublisherOptions{}); err != nil {
			return fmt.Errorf("restart: client %d of %d: %w", i+1, w.Clients, err)
		}
		dial.Record(connected.Sub(began).Nanoseconds())
		attach.Record(time.Since(connected).Nanoseconds())
	}
	w.say("%d clients", w.Clients)
	busy, err := w.broker.usage()
	if err != nil {
		return err
	}
	r.Create, r.Dial, r.Attach = timesOf(create), timesOf(dial), timesOf(attach)
	r.TopicBytes, r.TopicFiles = (full.bytes-empty.bytes)/int64(w.Topics), float64(full.files-empty.files)/float64(w.Topics)
	r.ClientBytes, r.ClientFiles = (busy.bytes-full.bytes)/int64(w.Clients), float64(busy.files-full.files)/float64(w.Clients)
	return nil
}

func name(i int) string { return fmt.Sprintf("topic.%d", i) }

// measure runs the load without kills, and with them.
func (w *world) measure(ctx context.Context, r *Result) (err error) {
	if w.load, err = launch(w.Load(w.socket), w.Patience); err != nil {
		return fmt.Errorf("restart: load: %w", err)
	}
	if _, err := w.load.lap(); err != nil { // what was before does not count
		return err
	}
	w.say("load without kills")
	if err := sleep(ctx, time.Duration(w.Kills)*w.Span/2); err != nil {
		return err
	}
	quiet, err := w.load.lap()
	if err != nil {
		return err
	}
	d := deaths{away: report.NewHistogram(), anew: report.NewHistogram(), start: report.NewHistogram(), back: report.NewHistogram()}
	for i := range w.Kills {
		w.say("kill %d of %d", i+1, w.Kills)
		if err := w.kill(ctx, &d); err != nil {
			return err
		}
	}
	r.Quiet, r.Away, r.Anew, r.Frames = timesOf(quiet.Pauses), timesOf(d.away), timesOf(d.anew), quiet.Frames+d.frames
	r.Start, r.Return = timesOf(d.start), timesOf(d.back)
	return nil
}

// deaths are what kills have cost.
type deaths struct {
	away, anew  *report.Histogram // pauses
	start, back *report.Histogram
	frames      uint64
}

// kill kills the broker, lets everybody be without it for half a span, and starts the next one.
func (w *world) kill(ctx context.Context, d *deaths) error {
	over := time.Now().Add(w.Span)
	w.broker.kill()
	if err := sleep(ctx, w.Span/2); err != nil {
		return err
	}
	if err := w.pauses(d.away, d); err != nil {
		return err
	}
	began := time.Now()
	if err := w.startBroker(); err != nil {
		return err
	}
	serves := time.Now()
	d.start.Record(serves.Sub(began).Nanoseconds())
	if err := w.answered(ctx); err != nil {
		return err
	}
	d.back.Record(time.Since(serves).Nanoseconds())
	if err := sleep(ctx, time.Until(over)); err != nil {
		return err
	}
	return w.pauses(d.anew, d)
}

// pauses adds those since the last time.
func (w *world) pauses(into *report.Histogram, d *deaths) error {
	l, err := w.load.lap()
	if err != nil {
		return err
	}
	into.Merge(l.Pauses)
	d.frames += l.Frames
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answered waits until each client has an answer of the broker, which comes after its slots are its own again.
func (w *world) answered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.Patience)
	defer cancel()
	errs := make([]error, len(w.clients))
	var all sync.WaitGroup
	for i, c := range w.clients {
		all.Go(func() {
			if _, err := c.Topic(ctx, name(i%w.Topics)); err != nil {
				errs[i] = fmt.Errorf("restart: client %d does not come back: %w", i, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
