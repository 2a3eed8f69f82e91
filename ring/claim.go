package ring

import (
	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// A Claim is room for one frame, in place: write Payload, then Commit, or Abort. It
// belongs to the goroutine that uses its Publisher, which can do nothing else
// meanwhile. Readers come to a stop in front of an open claim: hold it for a short time.
type Claim struct {
	// Payload is the room, in the ring. It is not zeroed, and must not be touched
	// after Commit or Abort.
	Payload []byte
	t       *ticket
}

// A ticket is what tells a claim from the publisher's earlier ones, as far as those that
// had another ticket. A pointer, because a Claim of more than four words would go through
// memory at every call, and be read again before it is written.
type ticket struct{ p *Publisher }

// claimTickets is how many claims in a row have tickets of their own.
const claimTickets = 32

// Claim reserves room for a payload of n bytes. Errors are those of TryPublish, and
// ErrClaimed while another claim is open.
func (p *Publisher) Claim(n int) (Claim, error) {
	if n < 0 || uint64(n) > p.maxPayload {
		return Claim{}, ErrTooLarge
	}
	t, need := p.tail.Load(), frameSize(uint64(n))
	off := t & p.mask
	if p.slow || t%CellSize != 0 || off+need > p.mask+1 || int64(p.limit-(t+need)) < 0 {
		return p.claimSlow(n)
	}
	arch.StoreRelease(&p.slot.bytes, need)
	arch.StoreRelease(&p.slot.intent, t|intentFlag) // SYNC(intent): release, as in reserve
	failpoint.Hit(FailAfterIntent)
	if p.exclusive {
		p.storeTail(t+need, need)
	} else if !p.tail.CompareAndSwap(t, t+need) {
		return p.claimSlow(n)
	}
	arch.StoreStore() // SYNC(tail): release, as in reserve
	failpoint.Hit(FailAfterClaim)
	if newRun(t, t+need) {
		p.prefetch(t+need, need)
	}
	p.start, p.pad, p.size = t, 0, need
	return p.hold(n), nil
}

// claimSlow is Claim for every case.
func (p *Publisher) claimSlow(n int) (Claim, error) {
	if p.held || p.closed {
		return Claim{}, p.unready()
	}
	if err := p.reserve(frameSize(uint64(n))); err != nil {
		return Claim{}, err
	}
	return p.hold(n), nil
}

// hold makes what was reserved the open claim, for a payload of n bytes.
func (p *Publisher) hold(n int) Claim {
	p.held, p.slow = true, true
	p.turn++
	off := (p.start + p.pad) & p.mask
	return Claim{Payload: p.window.bytes(off+offPayload, uint64(n)), t: &p.tickets[p.turn%claimTickets]}
}

// Commit makes the frame visible. ErrNotClaimed: that was done before.
func (c Claim) Commit() error { return c.CommitN(len(c.Payload)) }

// CommitN makes the first n bytes of the payload the frame. ErrTooLarge: n is above
// what was claimed; the claim stays open.
func (c Claim) CommitN(n int) error {
	if !c.Open() {
		return ErrNotClaimed
	}
	p := c.t.p
	if n < 0 || n > len(c.Payload) {
		return ErrTooLarge
	}
	if p.fenced || p.pad|(p.size-frameSize(uint64(n))) != 0 {
		return p.commitSlow(uint64(n))
	}
	failpoint.Hit(FailBeforeCommit)
	off := p.start & p.mask
	p.data.setPlain(off+offMeta, meta(uint32(n), kindData, 0, uint16(p.index)))
	arch.StoreRelease(p.data.word(off), stampOf(p.start, p.key)) // SYNC(commit): release
	failpoint.Hit(FailAfterCommit)
	p.held, p.slow = false, false
	arch.StoreRelease(&p.slot.intent, 0)
	failpoint.Hit(FailForgotten)
	p.frames++
	arch.StoreRelease(&p.slot.frames, p.frames)
	if p.sleepers.Load()|p.room.Load() != 0 { // SYNC(sleep), as in wake
		p.ring(p.start)
	}
	return nil
}

// commitSlow is CommitN for every case.
func (p *Publisher) commitSlow(n uint64) error {
	size := frameSize(n)
	if size > p.size {
		return ErrTooLarge // the user made Payload longer
	}
	if rest := p.size - size; rest != 0 {
		p.stampPadding(p.start+p.pad+size, rest, flagInner)
		failpoint.Hit(FailRestPadded)
	}
	p.commit(kindData, n)
	p.release()
	p.settle(1)
	return nil
}

// release ends the time in which the publisher can do nothing else.
func (p *Publisher) release() { p.held, p.slow = false, p.fenced }

// Open reports whether the claim waits for its Commit or Abort.
func (c Claim) Open() bool {
	return c.t != nil && c.t.p.held && c.t == &c.t.p.tickets[c.t.p.turn%claimTickets]
}

// Intent is where an open claim begins: what its publisher's slot says meanwhile
// (PublisherState). Its frame may be behind a padding frame there.
func (c Claim) Intent() Position { return Position(c.t.p.start) }

// Offset is where the payload of an open claim is in the ring's Data.
func (c Claim) Offset() uint64 { return (c.t.p.start+c.t.p.pad)&c.t.p.mask + offPayload }

// Abort turns the claim into padding, which readers skip. ErrNotClaimed: the claim was
// committed or aborted before.
func (c Claim) Abort() error {
	if !c.Open() {
		return ErrNotClaimed
	}
	c.t.p.abort()
	return nil
}

// Abandon ends the claim without touching the memory, for when its slot may be somebody
// else's by now. ErrNotClaimed as for Abort.
func (c Claim) Abandon() error {
	if !c.Open() {
		return ErrNotClaimed
	}
	c.t.p.release()
	return nil
}

func (p *Publisher) abort() {
	failpoint.Hit(FailBeforeAbort)
	p.commit(kindPadding, p.size-HeaderSize)
	p.release()
	p.settle(0)
}
