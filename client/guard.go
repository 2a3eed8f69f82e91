package client

import (
	"os"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/sys"
)

// A guard lets Close be called from any goroutine while another one is in the mapping,
// and unmaps only when nobody is. The user's side costs two plain stores and a load;
// the price is paid by Close, with a membarrier: SYNC(guard).
//
//	user:   busy = 1; look at closed; work; busy = 0; look at closed
//	Close:  closed = 1; membarrier; look at busy
//
// Either Close sees the user busy, and leaves the release to it, or the user sees
// closed. Whoever comes last releases, once. Without membarrier the user's stores are
// full fences.
type guard struct {
	busy     atomic.Uint64
	closed   atomic.Uint64
	fenced   bool
	released atomic.Bool
	release  func()
}

// init readies g; release runs once, when it is closed and nobody is inside.
func (g *guard) init(private bool, release func()) {
	g.fenced, g.release = !private, release
}

// enter says that the caller is in the mapping, until exit. An error: it is closed, or
// somebody else is inside.
func (g *guard) enter() error {
	if g.busy.Load() != 0 {
		return ErrInUse
	}
	g.setBusy(1)
	if g.closed.Load() != 0 { // SYNC(guard): acquire
		g.exit()
		return os.ErrClosed
	}
	return nil
}

// exit ends enter.
func (g *guard) exit() {
	g.setBusy(0)
	if g.closed.Load() != 0 {
		g.free()
	}
}

func (g *guard) setBusy(v uint64) {
	if g.fenced {
		g.busy.Store(v)
		return
	}
	arch.StoreRelease(&g.busy, v)
}

// close ends the use of what g guards. It does not wait for who is inside: that one
// releases when it leaves. False: it was closed before.
func (g *guard) close() bool {
	if g.closed.Swap(1) != 0 { // SYNC(guard): release
		return false
	}
	if !g.fenced {
		if err := sys.MembarrierPrivate(); err != nil {
			// It worked when the process registered. Leave the mapping to the process's
			// end rather than take it from under somebody.
			return true
		}
	}
	if g.busy.Load() == 0 {
		g.free()
	}
	return true
}

func (g *guard) free() {
	if g.released.CompareAndSwap(false, true) {
		g.release()
	}
}
