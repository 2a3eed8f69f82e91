// Package doorbell wakes sleepers in many processes with one system call.
//
// A Bell is one eventfd that every sleeper of a topic, in whatever process, watches edge-triggered through the Go
// netpoller. Nobody ever reads it. So one write wakes every sleeper, a sleeper holds a goroutine and no thread, and
// deadlines and cancellation work as they do for network connections. See eventfd(2), and EPOLLET in epoll(7).
//
// A Bell carries no state: it tells only those who sleep at that moment. Whoever sleeps has to say so in shared
// memory first and then look once more, in the callback of Wait, at what it waits for; whoever rings changes that
// first and then looks for sleepers. How that look is ordered against the change is the caller's protocol.
package doorbell

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

// ErrBusy means that a Wait was called on a Bell while another Wait on it was running: each waiter needs a Bell of
// its own, which Dup makes.
var ErrBusy = errors.New("doorbell: another Wait is running on this Bell: make one for each waiter with Dup")

// eventFDName is what /proc says about an eventfd.
const eventFDName = "anon_inode:[eventfd]"

// rawConn is the part of a syscall.RawConn that a Bell needs.
type rawConn interface {
	Control(f func(fd uintptr)) error
	Read(f func(fd uintptr) bool) error
}

// Bell is one process's descriptor of a doorbell. Make it with New, FromFile or Dup and release it with Close. All
// methods may be called from several goroutines at the same time, but only one Wait runs at a time.
type Bell struct {
	file *os.File
	raw  rawConn

	closed  atomic.Bool
	waiting atomic.Bool

	// The running Wait's own; look is built once so that Wait allocates nothing.
	look   func(fd uintptr) bool
	first  func() bool
	looked bool
	rung   bool

	// mu makes "interrupted" and the deadline that is set in the netpoller change together; otherwise a Wait that
	// starts could replace the deadline by which Interrupt means to stop it.
	mu          sync.Mutex
	interrupted bool
	deadline    time.Time
}

// New returns a Bell with a new eventfd. Others get at it through File and a descriptor passed over a Unix socket.
func New() (*Bell, error) {
	fd, err := sys.EventFD()
	if err != nil {
		return nil, fmt.Errorf("doorbell: %w", err)
	}
	return fromFD(fd)
}

// FromFile returns a Bell for an eventfd that came from elsewhere, for example by SCM_RIGHTS. It takes ownership of
// f in every case: f is not usable afterwards, and is closed also when there is an error.
func FromFile(f *os.File) (*Bell, error) {
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("doorbell: %w", err)
	}
	// f may have been made before the descriptor was non-blocking, and is then not watched by the netpoller; so take
	// a new descriptor of the same eventfd and wrap that one.
	return dup(raw)
}

// Dup returns another Bell for the same doorbell, for another waiter. The caller closes it.
func (b *Bell) Dup() (*Bell, error) {
	nb, err := dup(b.raw)
	if err != nil && b.closed.Load() {
		return nil, os.ErrClosed
	}
	return nb, err
}

func dup(raw rawConn) (*Bell, error) {
	fd, err := -1, error(nil)
	if cerr := raw.Control(func(old uintptr) { fd, err = sys.Dup(int(old)) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("doorbell: %w", err)
	}
	return fromFD(fd)
}

// fromFD takes ownership of fd, also when there is an error.
func fromFD(fd int) (*Bell, error) {
	err := sys.SetNonblock(fd)
	file := os.NewFile(uintptr(fd), "doorbell")
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("doorbell: %w", err)
	}
	// Without /proc there is no name, and no way to tell.
	if name, err := sys.DescriptorName(fd); err == nil && name != eventFDName {
		file.Close()
		return nil, fmt.Errorf("doorbell: descriptor is %q and not an eventfd", name)
	}
	// The netpoller refuses silently what it cannot watch; this is how it shows.
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		file.Close()
		return nil, fmt.Errorf("doorbell: eventfd cannot be watched by the netpoller "+
			"(is fs.epoll.max_user_watches used up?): %w", err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("doorbell: %w", err)
	}
	b := &Bell{file: file, raw: raw}
	b.look = b.lookOnce
	return b, nil
}

// File returns the descriptor, to be passed to another process. It still belongs to b: do not close it, and do not
// use it after Close.
func (b *Bell) File() *os.File { return b.file }

// ringer is one running Ring. RawConn wants a callback, and a closure would be an allocation for each ring.
type ringer struct {
	err  error
	ring func(fd uintptr)
}

var ringers = sync.Pool{New: func() any {
	r := new(ringer)
	r.ring = func(fd uintptr) { r.err = sys.EventFDAdd(int(fd)) }
	return r
}}

// Ring wakes everybody who waits on this doorbell, in every process, by one write. It never blocks as long as every
// holder of the doorbell leaves it non-blocking, and allocates nothing in the steady state. After Close it returns
// os.ErrClosed.
func (b *Bell) Ring() error {
	r := ringers.Get().(*ringer)
	err := b.raw.Control(r.ring)
	if err == nil {
		err = r.err
	} else if b.closed.Load() {
		err = os.ErrClosed
	}
	r.err = nil
	ringers.Put(r)
	return err
}

// Wait blocks until the doorbell is rung, with these results:
//
//   - false, nil: first returned true.
//   - true, nil: the doorbell was rung after first returned false, or shortly before it was called.
//   - os.ErrDeadlineExceeded: the deadline has passed (zero: there is none), or Interrupt was called.
//   - os.ErrClosed: Close was called.
//   - ErrBusy: another Wait is running on b.
//
// first is called once, when every later ring is certain to be noticed: it looks whether what the caller waits for
// is already there. A nil first stands for one that returns false. It is not called if the deadline has passed or b
// is interrupted or closed at the start, and must not call Close.
//
// Being rung means only that something may have changed: look again. Wait holds no thread while it blocks, and
// allocates nothing.
func (b *Bell) Wait(deadline time.Time, first func() bool) (rung bool, err error) {
	if !b.waiting.CompareAndSwap(false, true) {
		return false, ErrBusy
	}
	defer b.waiting.Store(false)
	if err := b.arm(deadline); err != nil {
		return false, b.waitError(err)
	}
	b.first, b.looked, b.rung = first, false, false
	err = b.raw.Read(b.look)
	b.first = nil
	if err != nil {
		return false, b.waitError(err)
	}
	return b.rung, nil
}

// lookOnce is the callback of RawConn.Read. The netpoller forgets earlier events before the first call, and calls
// again only after a new one, so a second call is a ring.
func (b *Bell) lookOnce(uintptr) bool {
	if b.looked {
		b.rung = true
		return true
	}
	b.looked = true
	return b.first != nil && b.first()
}

// waitError turns errors of the poller into those that Wait promises; "use of closed file" is not os.ErrClosed.
func (b *Bell) waitError(err error) error {
	switch {
	case b.closed.Load():
		return os.ErrClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return os.ErrDeadlineExceeded
	}
	return fmt.Errorf("doorbell: wait: %w", err)
}

// arm sets the deadline of the Wait that starts. Most waits have none, or the same as the last: then the timer is
// left alone.
func (b *Bell) arm(deadline time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.interrupted {
		return os.ErrDeadlineExceeded
	}
	if deadline.Equal(b.deadline) {
		return nil
	}
	if err := b.file.SetReadDeadline(deadline); err != nil {
		return err
	}
	b.deadline = deadline
	return nil
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// Interrupt makes the running Wait and every later one return os.ErrDeadlineExceeded, until Resume. Use it for
// cancellation:
//
//	stop := context.AfterFunc(ctx, bell.Interrupt)
//	defer stop()
//
// The function given to AfterFunc may still run after stop returned false, and then ends a later Wait of another
// caller: whoever gets os.ErrDeadlineExceeded before its deadline, with a context that is alive, calls Resume and
// waits again.
func (b *Bell) Interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interrupted = true
	b.deadline = longAgo
	// It fails only on a closed file, whose waiters are awake already.
	_ = b.file.SetReadDeadline(longAgo)
}

// Resume ends the effect of Interrupt. Call it when no Wait is running: a Wait that has been interrupted but has not
// run yet would go back to sleep.
func (b *Bell) Resume() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.interrupted = false
}

// Close releases the descriptor and makes a running Wait return os.ErrClosed, as every later call does. Other Bells
// of the same doorbell are not affected. Closing again does nothing.
func (b *Bell) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	if err := b.file.Close(); err != nil {
		return fmt.Errorf("doorbell: close: %w", err)
	}
	return nil
}
