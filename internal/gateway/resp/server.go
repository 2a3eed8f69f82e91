package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/gateway/outbox"
)

// ErrServed says that Serve was called on a Server that has been served or closed already.
var ErrServed = errors.New("resp: the server has been served or closed: make a new one")

// ErrMemory ends a client while all clients together hold more than Config.MaxMemory, and it holds most.
var ErrMemory = errors.New("the client reads too slowly, and more than --max-memory waits for all clients: let it read faster, or raise --max-memory")

// errGivenUp is why what was read is not published.
var errGivenUp = errors.New("the gateway has stopped, and there was no room on the topic, or no answer of the broker, within --drain-timeout")

// Server serves Redis clients. Its methods may be called by any goroutine; Serve is called once. It is a prometheus.Collector.
type Server struct {
	cfg      Config
	listener net.Listener
	shared   outbox.Shared
	warnings *door.RateLog
	limits   door.Limits
	began    time.Time
	subs     pubsub

	served  atomic.Bool
	ctx     context.Context // ends when the server stops
	cancel  context.CancelFunc
	hard    context.Context // ends when publishing is given up
	giveUp  context.CancelCauseFunc
	working sync.WaitGroup // hubs, and what opens them
	serving sync.WaitGroup // connections

	mu    sync.Mutex
	conns map[*conn]struct{}

	hubMu  sync.Mutex // comes before subs.mu
	hubs   map[string]*hub
	noHubs bool // none begins any more

	outletMu   sync.Mutex
	outletFree sync.Cond // somebody has released one
	outlets    map[string]*outlet
	releases   uint64 // so far

	accepted  atomic.Uint64
	commands  atomic.Uint64
	published atomic.Uint64
	read      atomic.Uint64 // frames
	delivered atomic.Uint64
	missed    atomic.Uint64 // bytes of positions
	rests     atomic.Int64  // bytes of memory with beginnings of commands
	malformed atomic.Uint64
	givenBack atomic.Uint64 // outlets, to make room for others
	givenUp   atomic.Uint64 // frames that were read and could not be published
	// backpressure is nanoseconds in calls that waited for room.
	backpressure atomic.Int64
	batchFrames  door.Histogram
	publishTimes door.Histogram
	ends         door.Counters
	denials      door.Counters
}

// New listens. Connections wait in the listen queue until Serve. If there is an error nothing is left open, a Listener that
// was given included.
func New(ctx context.Context, c Config) (*Server, error) {
	c, err := c.resolve()
	if c.Bus == nil {
		err = errors.Join(errors.New("no Bus"), err)
	}
	if err != nil {
		if c.Listener != nil {
			err = errors.Join(err, c.Listener.Close())
		}
		return nil, fmt.Errorf("resp: %w", err)
	}
	s := &Server{
		cfg: c, listener: c.Listener, began: time.Now(), conns: make(map[*conn]struct{}), hubs: make(map[string]*hub), outlets: make(map[string]*outlet),
		subs: pubsub{channels: make(audiences), patterns: make(audiences), hopes: make(map[hope]int)},
	}
	s.outletFree.L = &s.outletMu
	s.limits.MaxConns, s.limits.MaxPerAddr = c.MaxConns, c.MaxConnsPerAddr
	s.warnings = door.NewRateLog(c.Logger, func() time.Duration { return time.Since(s.began) })
	s.shared.MaxLag, s.shared.WriteTimeout, s.shared.OnSlow = c.MaxLag, c.WriteTimeout, func(*outbox.Outbox, outbox.Gap, error) {}
	if s.listener == nil {
		if s.listener, err = door.Listen(ctx, c.Listen, c.Socket); err != nil {
			return nil, fmt.Errorf("resp: %w", err)
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.hard, s.giveUp = context.WithCancelCause(context.Background())
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve serves clients until ctx is cancelled. Then it accepts no more, executes what it has read, lets clients take what
// waits for them for Config.DrainTimeout, closes all connections, and returns nil. It returns an error if listening failed.
func (s *Server) Serve(ctx context.Context) error {
	if s.served.Swap(true) {
		return ErrServed
	}
	if err := s.attachFirst(ctx); err != nil {
		return errors.Join(err, s.listener.Close())
	}
	accepting := make(chan error, 1)
	go func() { accepting <- s.accept(); s.cancel() }()
	if s.cfg.Topic == "" {
		s.working.Go(s.watchTopics)
	}
	select {
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	s.cancel()
	_ = s.listener.Close() // that it was closed by somebody else is what accept returns
	err := <-accepting
	s.stopHubs()
	s.stopConns()
	timer := time.AfterFunc(max(s.cfg.DrainTimeout, time.Millisecond), func() { s.giveUp(errGivenUp); s.closeConns() })
	s.serving.Wait()
	s.shared.Join()
	timer.Stop()
	s.giveUp(nil)
	err = errors.Join(err, s.closeOutlets())
	s.warnings.Flush()
	st := s.Stats()
	s.cfg.Logger.Info("gateway stopped", "listen", s.Addr().String(), "commands", st.Commands, "published", st.Published, "given_up", st.GivenUp, "delivered", st.Delivered)
	if err != nil {
		return fmt.Errorf("resp: %w", err)
	}
	return nil
}

// attachFirst attaches to the topic of all channels, so that what is wrong with it is told now and not to the first who publishes. A gateway
// that may only subscribe there serves those who do.
func (s *Server) attachFirst(ctx context.Context) error {
	if s.cfg.Topic == "" {
		return nil
	}
	_, err := s.acquire(ctx, s.cfg.Topic) // and never released: it is the only one
	switch {
	case err == nil || ctx.Err() != nil:
		return nil
	case errors.Is(err, ErrMayNot):
		s.cfg.Logger.Warn("nobody can publish through this gateway", "topic", s.cfg.Topic, "error", err)
		return nil
	}
	return fmt.Errorf("resp: --resp-topic %s: %s", s.cfg.Topic, plain(err))
}

// Close frees what a Server holds that was never served. After Serve it does nothing.
func (s *Server) Close() error {
	if s.served.Swap(true) {
		return nil
	}
	s.cancel()
	s.giveUp(nil)
	return s.listener.Close()
}

// stopConns makes every connection execute what it has read, send what waits, and end.
func (s *Server) stopConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.stop()
	}
}

// closeConns ends what is left at once.
func (s *Server) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.nc.Close() // it is over either way
	}
}

// accept takes connections until the server stops.
func (s *Server) accept() error {
	retry := &door.Retry{Log: s.warnings, Fail: func() { s.ends.Add(door.AcceptFailed) }, Stop: s.ctx.Done()}
	return door.Accept(s.listener, retry, func() bool { return s.ctx.Err() != nil }, s.admit)
}

// admit starts to serve a client, or closes the connection if there are too many.
func (s *Server) admit(nc net.Conn) {
	number := s.accepted.Add(1)
	if err := s.limits.Enter(nc.RemoteAddr()); err != nil {
		s.warnings.Warn(refused, "connection refused", slog.Any("error", err), slog.String("peer", nc.RemoteAddr().String()))
		s.ends.Add(refused)
		_ = nc.Close() // it is refused either way
		return
	}
	c := newConn(s, nc, number)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.serving.Done()
		c.serve()
		s.limits.Leave(nc.RemoteAddr())
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
}

// shed closes those who hold most, while all together hold too much. A subscriber of a quiet channel may hold a whole block for
// each of its few messages, so that the bound on its lag is none on memory.
func (s *Server) shed() {
	for s.shared.Blocks.Live() > s.cfg.MaxMemory {
		var worst *outbox.Outbox
		most := 0
		s.mu.Lock()
		for c := range s.conns {
			if out := c.outbox.Load(); out != nil {
				if n := out.Segments(); n > most {
					worst, most = out, n
				}
			}
		}
		s.mu.Unlock()
		if worst == nil {
			return
		}
		worst.Fail(ErrMemory)
	}
}
