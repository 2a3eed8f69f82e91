package egress

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
	"github.com/hugebus/hugebus/internal/gateway/outbox"
)

// ErrServed says that Serve was called on an Egress that has been served or closed already.
var ErrServed = errors.New("egress: it has been served or closed: make a new one")

// maxMark is how many bytes a gap marker takes at most.
const maxMark = 64

// Egress pushes a topic to clients. Its methods may be called by any goroutine; Serve is called once. It is a
// prometheus.Collector.
type Egress struct {
	cfg      Config
	codec    codec.Codec
	mark     func(dst []byte, frames, bytes uint64) []byte
	listener net.Listener
	shared   outbox.Shared
	writers  []*writer
	warnings *door.RateLog
	limits   door.Limits
	began    time.Time

	served  atomic.Bool
	ctx     context.Context // ends when no more is read from the topic
	cancel  context.CancelFunc
	serving sync.WaitGroup // of clients

	mu      sync.Mutex
	clients map[*client]struct{}

	accepted    atomic.Uint64
	read1       atomic.Uint64 // frames read
	missed      atomic.Uint64 // bytes of positions
	unsendable  atomic.Uint64
	unsentBytes atomic.Uint64
	ends        door.Counters
}

// New listens. Connections wait in the listen queue until Serve. If there is an error nothing is left open, a Listener that
// was given included.
func New(ctx context.Context, c Config) (*Egress, error) {
	e, err := newEgress(ctx, c)
	if err != nil && c.Listener != nil {
		err = errors.Join(err, c.Listener.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	return e, nil
}

func newEgress(ctx context.Context, c Config) (*Egress, error) {
	c, framing, err := c.resolve()
	switch {
	case err != nil:
		return nil, err
	case c.Source == nil:
		return nil, errors.New("no Source: set it to a subscription of the topic")
	case c.MaxPayload < 1:
		return nil, fmt.Errorf("a largest payload of %d bytes: set MaxPayload to the topic's", c.MaxPayload)
	}
	marker, ok := framing.(codec.Marker)
	if !ok {
		return nil, fmt.Errorf("codec %s cannot be pushed: use len32 or line", c.Codec)
	}
	e := &Egress{cfg: c, codec: framing, mark: marker.Mark, listener: c.Listener, began: time.Now(), clients: make(map[*client]struct{})}
	e.limits.MaxConns, e.limits.MaxPerAddr = c.MaxConns, c.MaxConnsPerAddr
	e.warnings = door.NewRateLog(c.Logger, func() time.Duration { return time.Since(e.began) })
	e.shared.MaxLag, e.shared.WriteTimeout, e.shared.OnSlow = c.MaxLag, c.WriteTimeout, e.slow
	if !c.CloseSlow {
		e.shared.Mark = func(dst []byte, g outbox.Gap) []byte { return marker.Mark(dst, g.Frames, g.Bytes) }
	}
	for range c.Writers {
		e.writers = append(e.writers, newWriter(e))
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if e.listener == nil {
		if e.listener, err = door.Listen(ctx, c.Listen, c.Socket); err != nil {
			e.cancel()
			return nil, err
		}
	}
	return e, nil
}

// Addr returns the address that the egress listens on.
func (e *Egress) Addr() net.Addr { return e.listener.Addr() }

// Serve accepts clients and sends them what is published, until ctx is cancelled. Then it accepts no more and reads no
// more, lets clients take what waits for them for Config.DrainTimeout, closes all connections, and returns nil. It returns an
// error if it had to stop because reading or listening failed.
func (e *Egress) Serve(ctx context.Context) error {
	if e.served.Swap(true) {
		return ErrServed
	}
	defer context.AfterFunc(ctx, e.cancel)()
	accepting := make(chan error, 1)
	go func() { accepting <- e.accept(); e.cancel() }()
	var writing sync.WaitGroup
	for _, w := range e.writers {
		writing.Go(w.run)
	}
	err := e.read(e.ctx)
	e.cancel()
	_ = e.listener.Close() // that it was closed by somebody else is what accept returns
	err = errors.Join(err, <-accepting)
	for _, w := range e.writers {
		w.finish()
	}
	writing.Wait()
	e.drain()
	e.closeAll()
	e.serving.Wait()
	e.shared.Join()
	e.warnings.Flush()
	s := e.Stats()
	e.cfg.Logger.Info("egress stopped", "listen", e.Addr().String(), "topic", e.cfg.Topic, "read", s.Read, "delivered", s.Delivered-s.SkippedFrames,
		"skipped", s.SkippedFrames, "unsent_bytes", s.Unsent)
	if err != nil {
		return fmt.Errorf("egress: %w", err)
	}
	return nil
}

// drain waits until nothing waits for clients, or the time for that is over.
func (e *Egress) drain() {
	deadline := time.Now().Add(e.cfg.DrainTimeout)
	for e.shared.Waiting.Load() > 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
}

// Close frees what an Egress holds that was never served. After Serve it does nothing.
func (e *Egress) Close() error {
	if e.served.Swap(true) {
		return nil
	}
	e.cancel()
	return e.listener.Close()
}

// accept takes connections until the egress stops.
func (e *Egress) accept() error {
	retry := &door.Retry{Log: e.warnings, Fail: func() { e.ends.Add(door.AcceptFailed) }, Stop: e.ctx.Done()}
	return door.Accept(e.listener, retry, func() bool { return e.ctx.Err() != nil }, e.admit)
}

// admit starts to serve a client, or closes the connection if there are too many.
func (e *Egress) admit(nc net.Conn) {
	e.accepted.Add(1)
	if err := e.limits.Enter(nc.RemoteAddr()); err != nil {
		e.warnings.Warn(refused, "connection refused", slog.Any("error", err), slog.String("peer", peerName(nc)))
		e.ends.Add(refused)
		_ = nc.Close() // it is refused either way
		return
	}
	c := &client{e: e, conn: nc, number: e.accepted.Load()}
	e.mu.Lock()
	e.clients[c] = struct{}{}
	e.serving.Add(1)
	e.mu.Unlock()
	go func() {
		defer e.serving.Done()
		c.serve()
		e.limits.Leave(nc.RemoteAddr())
		e.mu.Lock()
		delete(e.clients, c)
		e.mu.Unlock()
	}()
}

// closeAll ends all clients.
func (e *Egress) closeAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.clients {
		c.stop()
	}
}

// slow tells of a client that was skipped, or is about to be closed. It is called with the client's outbox locked.
func (e *Egress) slow(o *outbox.Outbox, g outbox.Gap, err error) {
	name := peerName(o.Conn())
	if err != nil {
		if errors.Is(err, outbox.ErrSlow) {
			err = fmt.Errorf("%w, or use --slow skip", err)
		}
		e.warnings.Warn(tooSlow, "slow client closed", slog.String("peer", name), slog.Any("error", err))
		return
	}
	e.warnings.Warn(skipped, "slow client skipped forward", slog.String("peer", name), slog.Uint64("frames", g.Frames),
		slog.Uint64("bytes", g.Bytes), slog.Int("max_lag", e.cfg.MaxLag))
}
