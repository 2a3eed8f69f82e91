package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// An operator may take a claim away from a publisher that holds it for too long (`hugebus topic
// unstick`). Others may use its memory only when nothing in this process writes there any more, and
// only this process can know when that is: a check and the store behind it are two
// instructions, and its user may write to a claim's payload whenever he likes. So the broker asks,
// and touches nothing until we give the slot back. The steps are those of docs/model/revoke.pml:
//
//	user:     held = claim ...writes... held = 0; look at revoked; commit
//	revoker:  revoked = 1; membarrier; look at held; fence; detach
//
// Either the revoker sees the claim in its user's hands, and puts private memory in the place of the
// window by which he writes, or the user sees revoked, and asks under the lock what became of it.
// It costs who commits a plain store and a load; copying publishers pay nothing, since what
// they are in the middle of ends by itself: SYNC(revoke).
type revocation struct {
	held    atomic.Uint64 // intent of the claim that is in its user's hands | 1, or 0
	revoked atomic.Uint32 // somebody is about to take it away
	fenced  bool          // no membarrier: the user's stores are full fences

	window *shm.Window // claims are written through it; nil before the first

	mu   sync.Mutex
	done bool // it was taken away
}

// hold notes that the user has the claim.
func (v *revocation) hold(c ring.Claim) { v.set(uint64(c.Intent()) | 1) } // SYNC(revoke): release

// take takes the claim back from its user. If it is false, takeSlow says whether he had it still.
func (v *revocation) take() bool {
	v.set(0)
	return v.revoked.Load() == 0 // SYNC(revoke): acquire
}

// takeSlow is false if the claim was taken away: then nothing of it may be touched.
func (v *revocation) takeSlow() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.done
}

func (v *revocation) set(held uint64) {
	if v.fenced {
		v.held.Store(held)
		return
	}
	arch.StoreRelease(&v.held, held)
}

// revoke takes the claim whose intent is at at away from its user. It is false if no such
// claim is in his hands: it is being committed, or was. open is the last claim, and may be read
// only while it is in his hands. then is called, still under the lock, when nothing of this process
// reaches the claim any more.
func (v *revocation) revoke(at Position, open *ring.Claim, then func()) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.done {
		return false, nil
	}
	v.revoked.Store(1)
	if !v.fenced {
		if err := sys.MembarrierPrivate(); err != nil {
			v.revoked.Store(0)
			return false, err
		}
	}
	if v.held.Load() != uint64(at)|1 {
		v.revoked.Store(0)
		return false, nil
	}
	if err := v.window.Fence(int64(open.Offset()), int64(len(open.Payload))); err != nil {
		v.revoked.Store(0)
		return false, err
	}
	v.done = true
	then()
	return true, nil
}

// close unmaps the window. Nobody holds a claim any more.
func (v *revocation) close() {
	if v.window != nil {
		_ = v.window.Close() // unmapping a mapping of our own cannot fail
	}
}

// openWindow maps the topic's frames once more, for this lane's claims.
func (l *Lane) openWindow() error {
	w, err := l.att.mem.segments[control.FileData].Window()
	if err == nil {
		err = l.p.Window(w.Bytes())
		if err != nil {
			_ = w.Close() // the first error says what went wrong
		}
	}
	if err != nil {
		return fmt.Errorf("client: topic %s: memory for claims: %w", l.att.topic, err)
	}
	l.revocation.window = w
	return nil
}

// revoke gives up a claim that the operator takes away, and its slot with it. It
// runs on the connection's reader, which must not wait.
func (c *Client) revoke(r control.Revoke) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.attached {
		if a.id == r.Attachment && a.lane != nil {
			a.mem.refs++ // until it is done
			go a.giveUp(Position(r.Position))
			return
		}
	}
	c.log.Debug("hugebus: a claim is to be given up by a publisher that has left", "topic", r.Topic, "position", r.Position)
}

// giveUp gives up the claim that a's lane holds at at, if it does.
func (a *attachment) giveUp(at Position) {
	c := a.client
	defer c.dropMapping(a.mem)
	log := c.log.With("topic", a.topic, "position", uint64(at))
	taken, err := a.lane.revocation.revoke(at, &a.lane.open, func() { a.ended.CompareAndSwap(notEnded, endedByOperator) })
	switch {
	case err != nil:
		log.Warn("hugebus: an operator wants a claim back that cannot be given up", "error", err)
		return
	case !taken:
		log.Info("hugebus: an operator wants a claim back that nobody holds: it is committed, or is just being committed")
		return
	}
	log.Warn("hugebus: an operator has taken a claim away: its publisher must attach again")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = c.conn.request(ctx, control.OpDetach, control.DetachRequest{Attachment: a.id, Revoked: true}, &control.Empty{})
	if err != nil && !errors.Is(err, ErrBrokerUnavailable) && !errors.Is(err, os.ErrClosed) {
		log.Warn("hugebus: broker does not take a publisher back", "error", err)
	}
}

// An UnstuckClaim says what has become of a claim that was to be taken away.
type UnstuckClaim = control.UnstuckClaim

// What has become of a claim that was to be taken away: see UnstuckClaim.Outcome.
const (
	// UnstickRevoked: its publisher has given it up, and it is padding now.
	UnstickRevoked = control.UnstickRevoked
	// UnstickEnded: it was finished before its publisher was asked.
	UnstickEnded = control.UnstickEnded
	// UnstickWaiting: its process has not answered, and has it still; see Remedy.
	UnstickWaiting = control.UnstickWaiting
)

// UnstickOptions choose among the publishers that hold a claim for too long; the zero value is
// all of them.
type UnstickOptions struct {
	// Publisher is a slot; nil: any.
	Publisher *int
	// PID is a process; 0: any.
	PID int
}

// Unstick takes claims away from publishers of a topic that live and have held them for longer than
// the broker's bound (stuck_claim), and says what has become of each. A process that does not
// answer within some seconds keeps its claim until it goes on: see Outcome and Remedy. ErrNotFound:
// no claim of the publishers meant is held for so long. ErrRefused: it needs the right admin.
func (c *Client) Unstick(ctx context.Context, topic string, o UnstickOptions) ([]UnstuckClaim, error) {
	if o.PID < 0 || o.PID > math.MaxInt32 {
		return nil, fmt.Errorf("client: %d is no process: give a number from 1 to %d, or 0 for any (--pid)", o.PID, math.MaxInt32)
	}
	var r control.UnstickReply
	ask := control.UnstickRequest{Name: topic, Publisher: o.Publisher, PID: int32(o.PID)}
	err := c.conn.request(ctx, control.OpUnstick, ask, &r)
	return r.Claims, err
}
