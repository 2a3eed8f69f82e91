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
	busy atomic.Uint64
	// unusual holds what the hot path need not tell apart.
	unusual  atomic.Uint64
	released atomic.Bool
	release  func()
}

// The bits of unusual.
const (
	guardClosed = 1 << iota
	guardFenced // without membarrier
)

// init readies g; release runs once, when it is closed and nobody is inside.
func (g *guard) init(private bool, release func()) {
	g.release = release
	if !private {
		g.unusual.Or(guardFenced)
	}
}

// enter says that the caller is in the mapping, until exit. An error: it is closed, or
// somebody else is inside.
func (g *guard) enter() error {
	if g.used() {
		return ErrInUse
	}
	if !g.mark() {
		return g.enterSlow()
	}
	return nil
}

// used, mark and enterSlow are the parts of enter, for the hottest calls: the first two
// are small enough to be inlined, enter is not.
func (g *guard) used() bool { return g.busy.Load() != 0 }

// mark says that the caller is in the mapping. False: something is unusual, enterSlow goes on.
func (g *guard) mark() bool {
	arch.StoreRelease(&g.busy, 1)
	return g.unusual.Load() == 0 // SYNC(guard): acquire
}

func (g *guard) enterSlow() error {
	if g.fenced() {
		g.busy.Store(1)
	}
	if g.closed() {
		g.exit()
		return os.ErrClosed
	}
	return nil
}

// exit ends enter.
func (g *guard) exit() {
	arch.StoreRelease(&g.busy, 0)
	if g.unusual.Load() != 0 {
		g.exitSlow()
	}
}

func (g *guard) exitSlow() {
	if g.fenced() {
		g.busy.Store(0)
	}
	if g.closed() {
		g.free()
	}
}

// closed reports whether close was called.
func (g *guard) closed() bool { return g.unusual.Load()&guardClosed != 0 }

// fenced reports whether stores of busy must be full fences.
func (g *guard) fenced() bool { return g.unusual.Load()&guardFenced != 0 }

// close ends the use of what g guards. It does not wait for who is inside: that one
// releases when it leaves. False: it was closed before.
func (g *guard) close() bool {
	if g.unusual.Or(guardClosed)&guardClosed != 0 { // SYNC(guard): release
		return false
	}
	if !g.fenced() {
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
