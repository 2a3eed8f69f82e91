package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/codec"
	"github.com/hugebus/hugebus/internal/gateway/door"
)

// ErrServed says that Serve was called on an Ingress that has been served or closed already.
var ErrServed = errors.New("gateway: the ingress has been served or closed: make a new one")

// AbortError is what Serve returns when it gave frames up: it was told to stop, the topic was full, and Abort or
// Config.DrainTimeout ended the wait.
type AbortError struct {
	Frames uint64 // whole frames that had been read from senders and are in no topic now
	Unread uint64 // bytes that senders had sent and nobody had read
}

// Error says what was lost, and how it can be kept.
func (e *AbortError) Error() string {
	return fmt.Sprintf("gateway: gave up waiting for room in the topic: %d frames that were read, and %d bytes that were not, "+
		"are lost: let subscribers catch up, or wait longer when stopping", e.Frames, e.Unread)
}

// Ingress accepts connections, cuts their streams into frames and publishes them. Its methods may be called by any
// goroutine; Serve is called once. It is a prometheus.Collector.
type Ingress struct {
	cfg       Config
	codec     codec.Codec
	maxFrame  int
	lanes     []Lane
	workers   *workers
	entrances []entrance
	began     time.Time
	clock     func() time.Duration // since began; tests have their own
	warnings  *door.RateLog
	limits    door.Limits
	chunks    chunks

	served     atomic.Bool
	stopping   atomic.Bool   // read what has come, then end
	stopSignal chan struct{} // closed after stopping is set and entrances are woken
	hard       context.Context
	giveUp     context.CancelCauseFunc // ends hard: frames that wait for room are given up
	failure    atomic.Pointer[error]   // what ended the ingress, if it was not its caller

	mu      sync.Mutex // guards conns
	conns   map[*conn]struct{}
	serving sync.WaitGroup // of connections

	accepted   atomic.Uint64
	ends       [reasons]atomic.Uint64
	tornFrames atomic.Uint64
	tornBytes  atomic.Uint64
	stopTorn   atomic.Uint64 // the part of tornBytes that was left when the ingress stopped
	givenUp    atomic.Uint64 // frames
	unread     atomic.Uint64 // bytes, counted when frames are given up
}

// NewIngress opens the lanes, then listens. Connections wait in the listen queue until Serve. The context is for opening
// lanes only. If there is an error nothing is left open, a Listener that was given included.
func NewIngress(ctx context.Context, c Config) (*Ingress, error) {
	in, err := newIngress(ctx, c)
	if err != nil && c.Listener != nil {
		err = errors.Join(err, c.Listener.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return in, nil
}

func newIngress(ctx context.Context, c Config) (*Ingress, error) {
	c, framing, err := c.resolve()
	switch {
	case err != nil:
		return nil, err
	case c.NewLane == nil:
		return nil, errors.New("no NewLane: set it to a function that opens a publisher of the topic")
	}
	in := &Ingress{
		cfg: c, codec: framing, began: time.Now(),
		stopSignal: make(chan struct{}), conns: make(map[*conn]struct{}),
	}
	in.clock = func() time.Duration { return time.Since(in.began) }
	in.hard, in.giveUp = context.WithCancelCause(context.Background())
	in.warnings = door.NewRateLog(c.Logger, in.now)
	in.limits.MaxConns, in.limits.MaxPerAddr = c.MaxConns, c.MaxConnsPerAddr
	if err := in.open(ctx); err != nil {
		in.giveUp(err)
		for _, e := range in.entrances {
			if c.Listener == nil { // what was given is its giver's, or NewIngress's, to close
				err = errors.Join(err, e.close())
			}
		}
		return nil, errors.Join(err, closeLanes(in.lanes))
	}
	return in, nil
}

// open opens what the configuration asks for. It may leave lanes open if there is an error.
func (in *Ingress) open(ctx context.Context) error {
	for range in.cfg.Lanes {
		lane, err := in.cfg.NewLane(ctx)
		if err != nil {
			return fmt.Errorf("open lane %d of %d: %w", len(in.lanes)+1, in.cfg.Lanes, err)
		}
		in.lanes = append(in.lanes, lane)
	}
	var err error
	if in.maxFrame, err = in.cfg.frameLimit(in.lanes); err != nil {
		return err
	}
	streams := in.lanes
	if in.cfg.packets() {
		streams = nil
	}
	in.workers = newWorkers(streams, in.cfg.BufferSize, in.cfg.BatchFrames)
	return in.enter(ctx)
}

// Addr returns the address that the ingress listens on.
func (in *Ingress) Addr() net.Addr { return in.entrances[0].addr() }

// MaxFrame returns how many payload bytes a frame may have.
func (in *Ingress) MaxFrame() int { return in.maxFrame }

// now returns the time since the ingress was made.
func (in *Ingress) now() time.Duration { return in.clock() }

// Serve accepts and serves connections until ctx is cancelled. Then it accepts no more, publishes every whole frame that
// has been received, closes all connections and lanes, and returns nil. It returns an *AbortError if frames had to be
// given up, and another error if it had to stop by itself because publishing or listening failed; frames may have been
// given up then too, which Stats tells.
func (in *Ingress) Serve(ctx context.Context) error {
	if in.served.Swap(true) {
		return ErrServed
	}
	var entering sync.WaitGroup
	for _, e := range in.entrances {
		entering.Go(e.run)
	}
	in.untilOver(ctx)
	in.stop()
	if in.cfg.DrainTimeout > 0 {
		timer := time.AfterFunc(in.cfg.DrainTimeout, in.Abort)
		defer timer.Stop()
	}
	entering.Wait()
	in.serving.Wait()
	in.giveUp(nil)
	return errors.Join(in.result(), closeLanes(in.lanes))
}

// untilOver waits until the ingress is to stop: it is told to, or it fails. A topic that has gone is noticed without a frame
// for it.
func (in *Ingress) untilOver(ctx context.Context) {
	look := time.NewTicker(laneLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-in.hard.Done():
			return
		case <-look.C:
			for _, lane := range in.lanes {
				if err := laneOver(lane); err != nil {
					in.failPublishing(err)
				}
			}
		}
	}
}

// stop makes every entrance and every connection read what it has and end.
func (in *Ingress) stop() {
	in.stopping.Store(true)
	for _, e := range in.entrances {
		e.wake()
	}
	close(in.stopSignal)
	in.mu.Lock()
	defer in.mu.Unlock()
	for c := range in.conns { // one that comes later sees that stopping is set
		c.interrupt()
	}
}

// Abort makes Serve stop without waiting for room in the topic any longer. Frames that were read and not published by
// then are given up, and counted.
func (in *Ingress) Abort() { in.abort(nil) }

// abort sets stopping first, so that who sees hard done reads no more.
func (in *Ingress) abort(cause error) {
	in.stopping.Store(true)
	in.giveUp(cause)
}

// fail makes Serve stop and return err. Only the first failure counts.
func (in *Ingress) fail(err error) {
	in.failure.CompareAndSwap(nil, &err)
	in.abort(err)
}

// result logs how the ingress ended, and returns the error that Serve returns.
func (in *Ingress) result() error {
	in.warnings.Flush()
	s := in.Stats()
	in.cfg.Logger.Info("ingress stopped", "listen", in.Addr().String(), "topic", in.cfg.Topic,
		"frames", s.Frames, "bytes", s.Bytes, "partial_bytes", in.stopTorn.Load(), "given_up", s.GivenUp, "unread_bytes", s.Unread, "dropped", s.Dropped)
	if err := in.failure.Load(); err != nil {
		return fmt.Errorf("gateway: %w", *err)
	}
	if s.GivenUp > 0 || s.Unread > 0 {
		return &AbortError{Frames: s.GivenUp, Unread: s.Unread}
	}
	return nil
}

// Close frees what an Ingress holds that was never served. After Serve it does nothing.
func (in *Ingress) Close() error {
	if in.served.Swap(true) {
		return nil
	}
	in.giveUp(nil)
	var errs []error
	for _, e := range in.entrances {
		errs = append(errs, e.close())
	}
	return errors.Join(append(errs, closeLanes(in.lanes))...)
}

func (in *Ingress) debug(message string, attrs ...slog.Attr) {
	in.cfg.Logger.LogAttrs(context.Background(), slog.LevelDebug, message, attrs...)
}
