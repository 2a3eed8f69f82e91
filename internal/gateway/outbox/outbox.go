package outbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// Errors with which an outbox ends by itself; see Outbox.Err.
var (
	// ErrSlow means that the peer lagged by more than Shared.MaxLag, and Shared.Mark is nil.
	ErrSlow = errors.New("the client reads too slowly: more than --max-lag waits for it: let it read faster, or raise --max-lag")
	// ErrTorn means that a peer could not be skipped forward, because the rest of the frame that it was in is too much memory.
	ErrTorn = errors.New("the client reads too slowly, and too much is kept for others in the middle of a frame: raise --max-lag")
	// ErrWriteTimeout means that the peer took nothing for Shared.WriteTimeout.
	ErrWriteTimeout = errors.New("the client took nothing for --write-timeout")
)

// Gap is what a peer was not sent.
type Gap struct {
	Frames uint64
	Bytes  uint64 // of the stream
}

// Shared is what the outboxes of one gateway have in common: settings, and counters. Settings do not change once an outbox uses it.
type Shared struct {
	Blocks       Blocks
	MaxLag       int           // bytes that may wait for a peer
	WriteTimeout time.Duration // how long a peer may take nothing while something waits; 0: without end

	// Mark appends what tells a peer of a gap, at most maxMark bytes. If it is nil, peers are not skipped but closed.
	Mark func(dst []byte, g Gap) []byte

	// OnSlow is told of each peer that was skipped, or is about to be closed because it is slow. It must not block.
	OnSlow func(o *Outbox, g Gap, err error)

	Writes        atomic.Uint64 // system calls
	Bytes         atomic.Uint64 // written
	Waiting       atomic.Int64  // peers for which something waits
	Queued        atomic.Int64  // bytes that wait, of all peers
	Skips         atomic.Uint64
	SkippedFrames atomic.Uint64
	SkippedBytes  atomic.Uint64
	waiters       sync.WaitGroup
	torn          atomic.Int64 // bytes of blocks that are kept for rests of frames
}

// Join waits until no goroutine works for an outbox any more. All have been closed, and their connections too.
func (s *Shared) Join() { s.waiters.Wait() }

// Torn is how many bytes of blocks are kept for peers that were skipped in the middle of a frame.
func (s *Shared) Torn() int64 { return s.torn.Load() }

const (
	maxMark   = 64       // bytes
	smallRest = 2 << 10  // bytes of a frame's rest that are copied: at most this for each peer
	maxTorn   = 16 << 20 // bytes of blocks that peers in the middle of larger frames may keep together, or MaxLag if that is more
)

// An Outbox is what is on its way to one peer. Send and Close may be called by any goroutine; frames of one sender keep their order.
type Outbox struct {
	shared *Shared
	conn   net.Conn
	onEnd  func()
	raw    syscall.RawConn // nil: conn is not a bare socket (TLS), and is written to by a goroutine only

	mu        sync.Mutex
	queue     []Segment
	first     int     // queue[:first] are gone
	queued    int     // bytes in the queue
	private   []byte  // what comes before the queue: the rest of the frame that the peer was in when it was skipped, or a gap's mark
	pinned    Segment // where private lies, if it is in a block
	gap       Gap     // is to be told when private is written
	waiting   bool    // a goroutine waits for the peer
	err       error
	closed    bool
	last      bool   // CloseWhenSent
	unflushed bool   // Queue was called, and no Flush yet
	progress  uint64 // writes that took something
	skips     uint64

	now  func(fd uintptr)      // writes batch; made once
	step func(fd uintptr)      // writes the queue; made once
	more func(fd uintptr) bool // the same for who waits; made once
	iov  []unix.Iovec          // argument of now
	one  [1]unix.Iovec         // for SendBytes
	n    int                   // result of now
	werr error                 // result of now
}

// New returns an outbox for a connection, which the caller closes after it has closed the outbox. OnEnd is called once when
// the outbox ends by itself (see Err); it must not block, and not call the outbox.
func New(shared *Shared, conn net.Conn, onEnd func()) (*Outbox, error) {
	o := &Outbox{shared: shared, conn: conn, onEnd: onEnd}
	if sc, ok := conn.(syscall.Conn); ok {
		raw, err := sc.SyscallConn()
		if err != nil {
			return nil, fmt.Errorf("outbox: %w", err)
		}
		o.raw = raw
	}
	o.now = func(fd uintptr) { o.n, o.werr = sys.Writev(int(fd), o.iov) }
	o.step = func(fd uintptr) { o.n, o.werr = 0, o.writeQueue(int(fd)) }
	o.more = o.writeMore
	return o, nil
}

// Err is why the outbox ended by itself, or nil.
func (o *Outbox) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Lag is how many bytes wait for the peer, and how often it was skipped.
func (o *Outbox) Lag() (bytes int, skips uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queued + len(o.private), o.skips
}

// Send sends a batch but for its first skip bytes: at once what the peer takes at once, the rest later. It never waits for the
// peer, and keeps references of its own. The batch must not be empty, and skip ends where a frame does. It returns false if
// the outbox has ended.
func (o *Outbox) Send(b *Batch, skip int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	sent := skip
	if skip == 0 && !o.waiting && o.raw != nil {
		o.iov = b.iov
		var err error
		if sent, err = o.writeOnce(); err != nil {
			o.end(err)
			return false
		}
	}
	if sent == b.bytes {
		return true
	}
	for _, s := range b.segs {
		skip := min(sent, s.Len())
		sent -= skip
		if s.from += uint32(skip); s.Len() > 0 {
			o.push(s)
		}
	}
	o.kept()
	return !o.closed
}

// Queue queues one segment, with a reference of its own. It does not write: Flush does. It returns true if nobody has
// been told so before: then the caller is the one to call Flush.
func (o *Outbox) Queue(s Segment) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	o.push(s)
	first, o.unflushed = !o.unflushed, true
	return first
}

// SendBytes sends bytes for this peer only: at once what it takes, and a copy of the rest later.
func (o *Outbox) SendBytes(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(b) == 0 {
		return
	}
	if o.queued == 0 && !o.waiting && o.raw != nil {
		o.one[0] = vector(b)
		o.iov = o.one[:]
		n, err := o.writeOnce()
		o.one[0] = unix.Iovec{}
		if err != nil {
			o.end(err)
			return
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return
	}
	mine := o.shared.Blocks.get(len(b))
	defer mine.drop() // the queue has its own reference
	mine.used = copy(mine.mem, b)
	mine.ends[0] = uint32(mine.used)
	mine.told.Store(1)
	o.push(Segment{b: mine, to: uint32(mine.used)})
	o.kept()
}

// writeOnce writes the vectors iov, and returns how much the peer took. The caller holds mu.
func (o *Outbox) writeOnce() (int, error) {
	err := o.raw.Control(o.now)
	o.iov = nil
	o.shared.Writes.Add(1)
	switch {
	case err != nil:
		return 0, err
	case o.werr == unix.EAGAIN:
		return 0, nil
	case o.werr != nil:
		return 0, o.werr
	}
	o.shared.Bytes.Add(uint64(o.n))
	return o.n, nil
}

// Segments is how many segments wait: roughly how many blocks the peer holds.
func (o *Outbox) Segments() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) - o.first
}

// Fail ends the outbox with an error.
func (o *Outbox) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end(err)
}

// CloseWhenSent lets who waits for the peer go on until nothing waits, and ends the outbox then, with io.EOF.
func (o *Outbox) CloseWhenSent() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	if !o.waiting && !o.closed {
		o.end(io.EOF)
	}
}

// Flush writes what Queue has queued. It returns false if the outbox has ended.
func (o *Outbox) Flush() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unflushed = false
	if o.closed || o.queued == 0 && len(o.private) == 0 {
		return !o.closed
	}
	if !o.waiting && o.raw != nil {
		err := o.raw.Control(o.step)
		if err == nil && o.werr != unix.EAGAIN {
			err = o.werr
		}
		if err != nil {
			o.end(err)
		}
	}
	if !o.closed && (o.queued > 0 || len(o.private) > 0) {
		o.kept()
	}
	return !o.closed
}

// push queues a segment, with a reference of its own. The caller holds mu.
func (o *Outbox) push(s Segment) {
	o.queued += s.Len()
	o.shared.Queued.Add(int64(s.Len()))
	if n := len(o.queue); n > o.first && o.queue[n-1].joins(s) {
		o.queue[n-1].to = s.to
		return
	}
	s.Hold()
	if o.first > 0 && o.first >= len(o.queue)/2 { // amortised: each segment moves once or twice
		n := copy(o.queue, o.queue[o.first:])
		clear(o.queue[n:])
		o.queue, o.first = o.queue[:n], 0
	}
	o.queue = append(o.queue, s)
}

// kept applies the bound on lag after something was queued, and sees to it that somebody waits for the peer. The caller holds mu.
func (o *Outbox) kept() {
	if o.queued > o.shared.MaxLag {
		o.tooSlow()
	}
	if o.closed || o.waiting {
		return
	}
	o.waiting = true
	o.shared.Waiting.Add(1)
	if o.raw == nil {
		o.shared.waiters.Go(o.pump)
	} else {
		o.shared.waiters.Go(o.wait)
	}
}

// tooSlow skips the peer forward, or ends it. The caller holds mu.
func (o *Outbox) tooSlow() {
	if o.shared.Mark == nil {
		o.shared.OnSlow(o, Gap{Bytes: uint64(o.queued)}, ErrSlow)
		o.end(ErrSlow)
		return
	}
	var gap Gap
	for i, s := range o.queue[o.first:] {
		end, frames := s.b.boundary(s.from, s.to)
		if rest := end - s.from; i == 0 && rest > 0 {
			if !o.keepRest(Segment{s.b, s.from, end}) {
				o.shared.OnSlow(o, gap, ErrTorn)
				o.end(ErrTorn)
				return
			}
			s.from = end
			frames--
		}
		gap.Frames += uint64(max(frames, 0))
		gap.Bytes += uint64(s.Len())
	}
	o.dropQueue()
	o.gap.Frames += gap.Frames
	o.gap.Bytes += gap.Bytes
	o.skips++
	o.shared.Skips.Add(1)
	o.shared.SkippedFrames.Add(gap.Frames)
	o.shared.SkippedBytes.Add(gap.Bytes)
	o.shared.OnSlow(o, gap, nil)
}

// keepRest keeps the rest of the frame that the peer is in the middle of: a copy if it is small, or the peer would hold a
// whole block for it. It returns false if too much is kept for all peers. The caller holds mu.
func (o *Outbox) keepRest(s Segment) bool {
	if s.Len() <= smallRest {
		o.private = append([]byte(nil), s.Bytes()...)
		return true
	}
	if !s.b.pin(&o.shared.torn, max(maxTorn, int64(o.shared.MaxLag))) {
		return false
	}
	s.Hold()
	o.pinned, o.private = s, s.Bytes()
	return true
}

// unpin lets go of the block that private is in, if it is in one. The caller holds mu.
func (o *Outbox) unpin() {
	o.private = nil
	if o.pinned.b != nil {
		o.pinned.b.unpin(&o.shared.torn)
		o.pinned.Drop()
		o.pinned = Segment{}
	}
}

func (o *Outbox) dropQueue() {
	for _, s := range o.queue[o.first:] {
		s.Drop()
	}
	clear(o.queue)
	o.queue, o.first = o.queue[:0], 0
	o.shared.Queued.Add(-int64(o.queued))
	o.queued = 0
}

// end ends the outbox and the connection. The caller holds mu.
func (o *Outbox) end(err error) {
	if o.closed {
		return
	}
	o.closed, o.err = true, err
	o.dropQueue()
	o.unpin()
	if o.waiting {
		_ = o.conn.SetWriteDeadline(time.Unix(1, 0)) // wakes who waits; that fails only on a closed connection
	}
	if o.onEnd != nil && err != os.ErrClosed {
		o.onEnd()
	}
}

// Conn is the connection that was given to New.
func (o *Outbox) Conn() net.Conn { return o.conn }

// Close forgets what has not been written, and wakes the goroutine that waits, if any. It returns how many bytes were
// forgotten.
func (o *Outbox) Close() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := o.queued + len(o.private)
	o.end(os.ErrClosed)
	return left
}
