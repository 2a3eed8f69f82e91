package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
)

// maxSessions is the most connections at once. A broker has one.
const maxSessions = 32

// firstIdle is how long a keeper waits at least for the broker that has started it.
const firstIdle = 30 * time.Second

// ServeOptions say what a keeper process does.
type ServeOptions struct {
	// Socket is the path to listen on. Its directory must be there.
	Socket string
	Limits Limits
	// Idle is how long a keeper without a broker and without entries lives; 0: for ever.
	Idle time.Duration
	// Log gets what happens; nil: nothing does.
	Log *slog.Logger
	// Ready, if not nil, is called once the keeper listens.
	Ready func()
}

// A server is a running keeper.
type server struct {
	log    *slog.Logger
	idle   time.Duration
	path   string
	lock   *socketLock
	listen *net.UnixListener
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	table    *table
	holder   *session
	sessions map[*session]struct{}
	timer    *time.Timer // ends an idle keeper; nil while it is not idle
	stopped  bool        // the socket is closed and gone
	farewell []*link     // to close when all else is done, for who waits for that
}

// Serve is the whole of a keeper process. It returns nil after Shutdown or when it was idle for long enough, and the
// context's error when that ends. All that it held is closed then.
//
// The socket belongs to its user alone (mode 0600), and only root and that user are served. A socket that a killed keeper
// left is taken over; a keeper that lives is an error. The soft limit of open files is raised to the hard one.
func Serve(ctx context.Context, o ServeOptions) error {
	s, err := newServer(o)
	if err != nil {
		return err
	}
	parent := ctx
	ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	s.log.Info("keeper listens", "socket", s.path, "pid", os.Getpid(), "entries", s.table.limits.Entries,
		"bytes", s.table.limits.Bytes, "descriptors", s.table.limits.Descriptors)
	if o.Ready != nil {
		o.Ready()
	}
	s.mu.Lock()
	s.armIdle(max(s.idle, firstIdle))
	s.mu.Unlock()
	s.done.Go(func() { s.accept(ctx) })
	<-ctx.Done()
	s.end()
	return parent.Err()
}

func newServer(o ServeOptions) (*server, error) {
	if err := control.CheckSocketPath(o.Socket); err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	openFiles, err := sys.RaiseFileLimit()
	if err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	limits, err := o.Limits.withDefaults(openFiles)
	if err != nil {
		return nil, err
	}
	s := &server{log: o.Log, idle: o.Idle, path: o.Socket, table: newTable(limits), sessions: make(map[*session]struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.lock, err = lockSocket(o.Socket); err != nil {
		return nil, err
	}
	if s.listen, err = listen(o.Socket); err != nil {
		return nil, errors.Join(err, s.lock.remove())
	}
	return s, nil
}

// listen takes a stale socket's place. Whoever calls it has the lock, so that nobody listens there.
func listen(path string) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("keeper: %s is there and is not a socket: remove it, or choose another path", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("keeper: stale socket: %w", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	// Whoever connects before this line is checked all the same.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("keeper: %w", err), l.Close())
	}
	return l, nil
}

func (s *server) accept(ctx context.Context) {
	for {
		socket, err := s.listen.AcceptUnix()
		if err == nil {
			s.done.Go(func() { s.serve(ctx, socket) })
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of descriptors, most likely: the connection waits in the queue.
		s.log.Error("keeper cannot accept a connection", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// serve checks who connected, and serves them.
func (s *server) serve(ctx context.Context, socket *net.UnixConn) {
	ss := &session{server: s, link: newLink(socket), ended: make(chan struct{})}
	defer s.hangUp(ss.link)
	stop := context.AfterFunc(ctx, func() { s.hangUp(ss.link) })
	defer stop()
	bad := s.admit(ss)
	if bad == nil {
		ss.run(ctx)
		return
	}
	s.log.Warn("keeper refuses a connection", "peer", ss.peer.String(), "error", bad)
	ss.refuse(ctx, bad)
}

// hangUp closes a connection, unless that is to come last.
func (s *server) hangUp(l *link) {
	s.mu.Lock()
	last := slices.Contains(s.farewell, l)
	s.mu.Unlock()
	if !last {
		_ = l.Close() // the second time it is closed already
	}
}

func (s *server) admit(ss *session) *control.Error {
	var err error
	if ss.peer, err = ss.link.Peer(); err != nil {
		return control.Errorf(control.CodeInternal, "%v", err)
	}
	if !trusted(ss.peer) {
		return control.Errorf(control.CodeRefused, "the keeper serves uid %d and root, not %v", os.Geteuid(), ss.peer)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) >= maxSessions {
		return control.Errorf(control.CodeQuota, "%d connections are the keeper's limit", maxSessions)
	}
	s.sessions[ss] = struct{}{}
	return nil
}

// trusted reports whether the other end may have the descriptors, or may be given them.
func trusted(peer control.Identity) bool {
	return peer.UID == 0 || int(peer.UID) == os.Geteuid()
}

// acquire gives the lease to a session, or returns who has it.
func (s *server) acquire(ctx context.Context, ss *session) (holder *control.Identity) {
	for {
		s.mu.Lock()
		h := s.holder
		if h == nil {
			s.holder = ss
			s.disarmIdle()
			s.mu.Unlock()
			s.log.Info("keeper serves a broker", "broker", ss.peer.String())
			return nil
		}
		s.mu.Unlock()
		if !h.link.hungUp() {
			return &h.peer
		}
		// It is dead. What it had sent before is carried out first.
		select {
		case <-h.ended:
		case <-ctx.Done():
			return &h.peer
		}
	}
}

// release forgets a session, and takes the lease back if it has it.
func (s *server) release(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, ss)
	if s.holder == ss {
		s.holder = nil
		s.log.Info("the broker is gone", "broker", ss.peer.String(), "entries", len(s.table.items), "descriptors", s.table.descriptors)
	}
	s.armIdle(s.idle)
}

func (s *server) holds(ss *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder == ss
}

// change applies fn to the table, then closes what is not needed any more: to free the last descriptor of a large
// segment takes a while.
func (s *server) change(fn func(*table) ([]int, error)) error {
	s.mu.Lock()
	unneeded, err := fn(s.table)
	s.mu.Unlock()
	closeFDs(unneeded)
	return err
}

func (s *server) after(key string) (string, *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.after(key)
}

func (s *server) item(key string) *item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.items[key]
}

// armIdle starts the clock of a keeper that nobody needs. The lock is held.
func (s *server) armIdle(after time.Duration) {
	s.disarmIdle()
	if s.idle > 0 && s.holder == nil && len(s.table.items) == 0 && !s.stopped {
		s.timer = time.AfterFunc(after, s.endIdle)
	}
}

func (s *server) disarmIdle() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

func (s *server) endIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil || len(s.table.items) > 0 || len(s.sessions) > 0 {
		return // and whoever changes that arms the clock again
	}
	s.log.Info("keeper ends: it has nothing to keep", "after", s.idle)
	s.closeSocket()
	s.cancel()
}

// stop takes the socket away, unless somebody else holds the lease. The caller cancels when it has answered.
func (s *server) stop(ss *session) (holder *control.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil && s.holder != ss && !s.holder.link.hungUp() {
		return &s.holder.peer
	}
	s.log.Info("keeper is shut down", "by", ss.peer.String(), "entries", len(s.table.items))
	s.closeSocket()
	s.farewell = append(s.farewell, ss.link)
	return nil
}

// closeSocket leaves no trace in the file system. The lock is held.
func (s *server) closeSocket() {
	if s.stopped {
		return
	}
	s.stopped = true
	s.disarmIdle()
	// It unlinks the socket. Then the next keeper may have it.
	if err := errors.Join(s.listen.Close(), s.lock.remove()); err != nil {
		s.log.Error("keeper cannot take its socket away", "error", err)
	}
}

// end closes everything and waits for the goroutines.
func (s *server) end() {
	s.mu.Lock()
	s.closeSocket()
	s.mu.Unlock()
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	closeFDs(s.table.clear())
	for _, l := range s.farewell {
		_ = l.Close() // that it is closed is all the other side wants to know
	}
}
