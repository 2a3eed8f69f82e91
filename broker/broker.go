package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
)

// A Broker serves one control socket. Its methods are safe for concurrent use.
type Broker struct {
	config   Config
	log      *slog.Logger
	access   *access
	ledger   *ledger
	topics   *catalogue
	barriers sys.Barriers
	epoch    uint64
	hello    control.Hello

	socket  *socket
	metrics net.Listener // nil: none
	figures figures

	lastAttachment atomic.Uint64
	refusing       atomic.Int64  // clients beyond a quota that are being told so
	stopping       chan struct{} // closed first of all when the broker stops
	// somethingAttached makes watch look, which sleeps while nothing is attached.
	somethingAttached chan struct{}
	background        sync.WaitGroup // the accept loop, sessions and repairs
	closeOnce         sync.Once
	closeErr          error

	vault  vault
	forget atomic.Bool // Stop was asked for: nothing outlives this broker

	mu       sync.Mutex
	sessions map[*session]struct{}
	holders  map[string]*holder // by secret
	served   bool
}

// New checks the configuration, takes the socket, and makes the configured topics. From
// here on clients may connect; they are answered once Serve runs.
//
// Errors name what is wrong and what to do: a *ConfigError, another broker on the
// socket (with its pid), a directory that is not there, an address in use, memory that
// cannot be had.
func New(c Config) (_ *Broker, err error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	pick(&c.Socket, control.DefaultSocket())
	pick(&c.SocketMode, DefaultSocketMode)
	pick(&c.GroupLinger, DefaultGroupLinger)
	pick(&c.AdoptGrace, DefaultAdoptGrace)
	pick(&c.StuckClaim, DefaultStuckClaim)
	rules, _ := newAccess(c.Access) // checked above
	b := &Broker{
		config: c, log: c.Logger, access: rules, ledger: newLedger(c.Quotas), topics: newCatalogue(),
		// Microseconds fit the 53 bits that every JSON reader has for a number.
		epoch:    uint64(time.Now().UnixMicro()),
		hello:    control.NewHello(ring.LayoutVersion),
		stopping: make(chan struct{}), sessions: map[*session]struct{}{}, holders: map[string]*holder{},
		vault: vault{log: c.Logger}, somethingAttached: make(chan struct{}, 1),
	}
	b.hello.Epoch, b.hello.PID = b.epoch, os.Getpid()
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("broker: %w", err), b.Close())
		}
	}()
	// The broker publishes dead letters and joins groups: it takes part in others' membarriers.
	if b.barriers, err = sys.MembarrierRegister(); err != nil {
		return nil, err
	}
	if b.metrics, err = listenMetrics(c.Metrics); err != nil {
		return nil, err
	}
	if err := b.begin(); err != nil {
		return nil, err
	}
	for i, t := range c.Topics {
		if err := b.configured(t); err != nil {
			return nil, fmt.Errorf("topics[%d]: topic %q: %w", i, t.Name, err)
		}
	}
	return b, nil
}

// configured makes a topic of the configuration, unless an earlier broker has.
func (b *Broker) configured(c TopicConfig) error {
	if t := b.topics.get(c.Name); t != nil {
		if want := mergeOptions(c.Options, b.config.Defaults); !reflect.DeepEqual(t.options, want) {
			t.log.Warn("topic of an earlier broker has other options than the configuration says: remove it to have it made anew",
				"options", t.options, "configured", want)
		}
		return nil
	}
	_, err := b.create(c.Name, c.Options, uint32(os.Geteuid()))
	return err
}

// Addr is the path of the control socket.
func (b *Broker) Addr() string { return b.config.Socket }

// MetricsAddr is the address of the metrics server, with the port that it got, or empty.
func (b *Broker) MetricsAddr() string {
	if b.metrics == nil {
		return ""
	}
	return b.metrics.Addr().String()
}

// Serve answers clients until ctx ends, then stops cleanly: clients are told, the socket
// is removed, and nothing of the broker is left when it returns. What is attached goes
// on. The error is nil after a clean stop.
func (b *Broker) Serve(ctx context.Context) error {
	b.mu.Lock()
	if b.served || b.isStopping() {
		b.mu.Unlock()
		return errors.New("broker: Serve was called before, or after Close")
	}
	b.served = true
	b.background.Add(1)
	b.mu.Unlock()
	stopped := context.AfterFunc(ctx, func() { b.stop() })
	defer stopped()
	b.log.Info("broker serves", "socket", b.config.Socket, "metrics", b.MetricsAddr(), "pid", os.Getpid(),
		"epoch", b.epoch, "topics", b.topics.count(), "membarrier", b.barriers.Global)
	b.serveMetrics()
	b.announce()
	b.background.Go(b.watch)
	err := b.acceptAll()
	b.background.Done()
	err = errors.Join(err, b.Close())
	b.log.Info("broker has stopped", "socket", b.config.Socket)
	return err
}

// acceptAll takes new connections until the broker stops.
func (b *Broker) acceptAll() error {
	for wait := time.Duration(0); ; {
		conn, err := b.socket.listener.AcceptUnix()
		switch {
		case err == nil:
			wait = 0
			b.background.Go(func() { b.serveClient(control.NewConn(conn, control.MaxRequest)) })
		case b.isStopping():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("broker: the socket was closed: %w", err)
		default:
			// Most likely the limit of open files. Those who are connected go on; new ones wait.
			wait = min(max(2*wait, 10*time.Millisecond), time.Second)
			b.log.Error("cannot accept a client; trying again", "error", sys.Explain(err), "wait", wait)
			select {
			case <-time.After(wait):
			case <-b.stopping:
			}
		}
	}
}

// isStopping reports whether Close was called or Serve's context has ended.
func (b *Broker) isStopping() bool {
	select {
	case <-b.stopping:
		return true
	default:
		return false
	}
}

// stop begins the end: from here on a connection's end is not a death any more.
func (b *Broker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isStopping() {
		return
	}
	close(b.stopping)
	if b.socket != nil {
		b.socket.stopAccepting()
	}
	for _, h := range b.holders {
		b.background.Go(h.wake)
	}
}

// Close stops the broker, as the end of Serve's context does, and waits until nothing of
// it is left. Closing again does nothing but wait.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() {
		b.stop()
		b.announceEnd()
		b.farewell()
		if b.metrics != nil {
			b.closeErr = ignoreClosed(b.metrics.Close())
		}
		b.background.Wait()
		b.topics.closeAll()
		b.closeHolders()
		b.closeErr = errors.Join(b.closeErr, b.endStore())
		if b.socket != nil {
			b.closeErr = errors.Join(b.closeErr, b.socket.release(b.forget.Load()))
		}
	})
	return b.closeErr
}

// farewell tells all clients that the broker stops, and closes their connections.
func (b *Broker) farewell() {
	b.mu.Lock()
	sessions := make([]*session, 0, len(b.sessions))
	for s := range b.sessions {
		sessions = append(sessions, s)
	}
	b.mu.Unlock()
	var all sync.WaitGroup
	for _, s := range sessions {
		all.Go(s.farewell)
	}
	all.Wait()
}

// enter registers a session. It is false when the broker stops.
func (b *Broker) enter(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isStopping() {
		return false
	}
	b.sessions[s] = struct{}{}
	return true
}

func (b *Broker) leave(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
