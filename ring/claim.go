package ring

import "github.com/hugebus/hugebus/internal/failpoint"

// A Claim is room for one frame, in place: write Payload, then Commit, or Abort. It
// belongs to the goroutine that uses its Publisher, which can do nothing else
// meanwhile. Readers come to a stop in front of an open claim: hold it for a short time.
type Claim struct {
	// Payload is the room, in the ring. It is not zeroed, and must not be touched
	// after Commit or Abort.
	Payload []byte
	p       *Publisher
	seq     uint64 // tells this claim from the publisher's earlier ones
}

// Claim reserves room for a payload of n bytes. Errors are those of TryPublish, and
// ErrClaimed while another claim is open.
func (p *Publisher) Claim(n int) (Claim, error) {
	if n < 0 || uint64(n) > p.maxPayload {
		return Claim{}, ErrTooLarge
	}
	if p.held || p.closed {
		return Claim{}, p.unready()
	}
	if err := p.reserve(frameSize(uint64(n))); err != nil {
		return Claim{}, err
	}
	p.held = true
	p.claims++
	off := (p.start + p.pad) & p.mask
	return Claim{Payload: p.data.bytes(off+offPayload, uint64(n)), p: p, seq: p.claims}, nil
}

// Commit makes the frame visible. ErrNotClaimed: that was done before.
func (c Claim) Commit() error { return c.CommitN(len(c.Payload)) }

// CommitN makes the first n bytes of the payload the frame. ErrTooLarge: n is above
// what was claimed; the claim stays open.
func (c Claim) CommitN(n int) error {
	p := c.p
	if !c.open() {
		return ErrNotClaimed
	}
	if n < 0 || n > len(c.Payload) {
		return ErrTooLarge
	}
	size := frameSize(uint64(n))
	if rest := p.size - size; rest != 0 {
		p.stampPadding(p.start+p.pad+size, rest, flagInner)
		failpoint.Hit(FailRestPadded)
	}
	p.commit(kindData, uint64(n))
	p.held = false
	p.settle(1)
	return nil
}

func (c Claim) open() bool { return c.p != nil && c.p.held && c.seq == c.p.claims }

// Abort turns the claim into padding, which readers skip. ErrNotClaimed: the claim was
// committed or aborted before.
func (c Claim) Abort() error {
	if !c.open() {
		return ErrNotClaimed
	}
	c.p.abort()
	return nil
}

func (p *Publisher) abort() {
	failpoint.Hit(FailBeforeAbort)
	p.commit(kindPadding, p.size-HeaderSize)
	p.held = false
	p.settle(0)
}
