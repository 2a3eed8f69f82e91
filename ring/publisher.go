package ring

import (
	"fmt"
	"sync/atomic"

	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// Failpoints of publishing, in the order in which they are passed.
const (
	FailAfterIntent  = "ring/publish/after-intent"
	FailAfterClaim   = "ring/publish/after-claim"
	FailMidCopy      = "ring/publish/mid-copy"
	FailBeforeCommit = "ring/publish/before-commit"
	FailMidWrap      = "ring/publish/mid-wrap" // only of a claim that begins with padding
	FailAfterCommit  = "ring/publish/after-commit"
	FailBeforeRing   = "ring/publish/before-ring"
)

// A Doorbell wakes every process that sleeps on it. Ring must not block.
type Doorbell interface {
	Ring() error
}

// PublisherOptions are what a Publisher may be told.
type PublisherOptions struct {
	// Doorbell wakes subscribers that sleep; nil where nobody sleeps.
	Doorbell Doorbell
	// Room wakes other publishers, which wait for room that our open claim holds; nil
	// where none sleeps.
	Room Doorbell
}

// prefetchAhead is how far ahead of a claim, in bytes, the line is asked for that a
// later claim will write: the last lap's reader still holds it, and fetching it back
// takes some 100 ns. 16 to 32 lines were best; 8 are worse than none (docs/performance.md).
const prefetchAhead = 24 * CellSize

// prefetchRun is how many bytes are asked for at once, each time that a claim begins a
// new run: a call for each line costs more than the line.
const prefetchRun = arch.PrefetchRun

// A Publisher writes frames from one publisher slot. It is for one goroutine at a
// time; several publishers of one ring, in one process or many, need no coordination.
//
// Nothing that a Publisher does allocates or enters the kernel, except for ringing
// the doorbell when somebody sleeps.
type Publisher struct {
	_ apart
	// What follows is read for every frame and never changes.
	r          *Ring
	data       region
	window     region // data, as claims hand it out
	tail       *atomic.Uint64
	slot       *publisherSlot
	sleepers   *atomic.Uint64 // of subscribers
	room       *atomic.Uint64 // of publishers that wait for room
	bell       Doorbell       // rings for sleepers
	roomBell   Doorbell       // rings for room
	mask       uint64
	key        uint64
	maxPayload uint64
	index      int
	exclusive  bool
	fenced     bool

	// What follows changes.
	held    bool // a claim is open
	closed  bool
	slow    bool   // held, closed, or a ring whose commits are full fences: not the short way
	limit   uint64 // position that may be claimed up to; a copy of the slot's
	frames  uint64 // committed, a copy of the slot's
	turn    uint64 // of Claim; tells which of tickets the last claim has
	tickets [claimTickets]ticket
	start   uint64 // of the claim: its first frame, perhaps padding
	pad     uint64 // bytes of padding that the claim begins with
	size    uint64 // bytes of the claim after that
	fence   atomic.Uint64
	_       apart
}

// Publisher attaches to publisher slot index, which the broker has admitted
// (AdmitPublisher) and which nobody else uses.
func (r *Ring) Publisher(index int, o PublisherOptions) (*Publisher, error) {
	if index < 0 || index >= len(r.publishers) || r.publishers[index].state.Load() != pubActive {
		return nil, fmt.Errorf("%w: publisher slot %d of %d is not admitted", ErrSlot, index, len(r.publishers))
	}
	slot := &r.publishers[index]
	p := &Publisher{
		r: r, data: r.data, window: r.data, tail: r.tail, slot: slot,
		sleepers: r.sleepers, room: r.roomSleepers, bell: o.Doorbell, roomBell: o.Room,
		mask: r.mask, key: r.cfg.Key, maxPayload: uint64(r.cfg.MaxPayload), index: index,
		exclusive: r.cfg.Exclusive, fenced: r.cfg.Fenced, slow: r.cfg.Fenced,
		limit: slot.limit.Load(), frames: slot.frames.Load(),
	}
	for i := range p.tickets {
		p.tickets[i].p = p
	}
	return p, nil
}

// Window makes claims hand their payloads out from b, which shows the same memory as the
// ring's Data: a mapping of its own, which the owner of the memory can take away from whoever
// has a claim's payload. No claim may be open. ErrGeometry: b is of another size.
func (p *Publisher) Window(b []byte) error {
	if p.held {
		return ErrClaimed
	}
	if uint64(len(b)) != p.mask+1 {
		return fmt.Errorf("%w: a window of %d bytes on data of %d", ErrGeometry, len(b), p.mask+1)
	}
	window, err := newRegion("window", b, int64(p.mask+1))
	if err != nil {
		return err
	}
	p.window = window
	return nil
}

// MaxPayload is the largest payload in bytes.
func (p *Publisher) MaxPayload() int { return int(p.maxPayload) }

// Index is the publisher's slot, which its frames carry as Source.
func (p *Publisher) Index() int { return p.index }

// reserve claims need bytes in one piece, and the padding before them if they would
// wrap. On success p.start, p.pad and p.size say what is ours.
func (p *Publisher) reserve(need uint64) error {
	first := p.slot.intent.Load() // not 0: TryPublish or Claim has lost its compare-and-swap
	for {
		t := p.tail.Load()
		if t%CellSize != 0 {
			p.withdraw(first)
			return ErrCorrupt
		}
		pad := uint64(0)
		if off := t & p.mask; off+need > p.mask+1 {
			pad = p.mask + 1 - off
		}
		end := t + pad + need
		if int64(p.limit-end) < 0 && !p.refresh(pad+need, end) {
			p.withdraw(first)
			return ErrBackpressure
		}
		if first == 0 {
			first = t | intentFlag
		}
		arch.StoreRelease(&p.slot.bytes, pad+need)
		// SYNC(intent): release. The compare-and-swap that follows is a full fence, so the
		// intent is visible before tail moves; in exclusive mode both are release stores.
		arch.StoreRelease(&p.slot.intent, t|intentFlag)
		failpoint.Hit(FailAfterIntent)
		if p.exclusive {
			p.storeTail(end, need)
		} else if !p.tail.CompareAndSwap(t, end) {
			continue
		}
		// SYNC(tail): release. A lossy reader that saw a byte of ours sees this tail.
		arch.StoreStore()
		failpoint.Hit(FailAfterClaim)
		p.start, p.pad, p.size = t, pad, need
		if first != t|intentFlag {
			p.ringRoom(first &^ intentFlag) // the intent has moved on from there
		}
		if newRun(t, end) {
			p.prefetch(end, need)
		}
		return nil
	}
}

// newRun reports whether a claim from t to end began a run.
func newRun(t, end uint64) bool { return (t^end)&^(prefetchRun-1) != 0 }

// prefetch asks for the lines of a later claim than that which ends at end: where the fourth after it would begin if
// all are of need bytes, or prefetchAhead, whichever is further.
func (p *Publisher) prefetch(end, need uint64) {
	ahead := uint64(prefetchAhead)
	if need > ahead {
		ahead = need * 4
	}
	arch.PrefetchWriteRun(p.data.word((end + ahead) & p.mask &^ (prefetchRun - 1)))
}

// refresh computes the limit again, and reports whether a claim of need bytes that
// ends at end now fits. The slot's counter is odd meanwhile: SYNC(join-limit): release
// (fenced on both sides, see join.go).
func (p *Publisher) refresh(need, end uint64) bool {
	p.slot.counter.Begin()
	failpoint.Hit(FailLimitOdd)
	p.limit = p.r.limit(p.index, need)
	p.slot.limit.Store(p.limit)
	failpoint.Hit(FailLimitStored)
	p.slot.counter.End()
	return int64(p.limit-end) >= 0
}

// Fits reports whether a payload of n bytes would find room now, without claiming it.
// It is what a publisher that waits for room looks at.
func (p *Publisher) Fits(n int) bool {
	t := p.tail.Load()
	need := frameSize(uint64(n))
	if off := t & p.mask; off+need > p.mask+1 {
		need += p.mask + 1 - off
	}
	return p.closed || int64(p.limit-(t+need)) >= 0 || p.refresh(need, t+need)
}

// streamed is the size in bytes from which the runtime may copy with non-temporal stores
// (memmove_amd64.s, from 1 MiB on), which can be seen before an earlier plain store.
const streamed = 1 << 20

// storeTail moves the tail of an exclusive ring, for a claim of need bytes.
func (p *Publisher) storeTail(end, need uint64) {
	if need >= streamed {
		arch.StoreFence(p.tail, end) // a full fence: SYNC(tail) must hold for streaming stores too
		return
	}
	arch.StoreRelease(p.tail, end)
}

// forget clears the intent.
func (p *Publisher) forget() { p.r.publish(&p.slot.intent, 0) }

// withdraw clears the intent of a claim that was not made, of which first is the first word, or 0 if there was none: repair would wait
// for it, and until now it held others back like one that was.
func (p *Publisher) withdraw(first uint64) {
	if first == 0 {
		return
	}
	p.forget()
	failpoint.Hit(FailWithdrawn)
	p.wake(first &^ intentFlag)
}

// settle ends a claim whose first stamp is stored: it clears the intent, counts n
// frames and wakes who sleeps.
func (p *Publisher) settle(n uint64) {
	failpoint.Hit(FailAfterCommit)
	p.forget()
	failpoint.Hit(FailForgotten)
	p.frames += n
	arch.StoreRelease(&p.slot.frames, p.frames)
	p.wake(p.start)
}

// wake rings for subscribers that sleep, and for publishers that wait for room, after the claim that began at position t.
func (p *Publisher) wake(t uint64) {
	// SYNC(sleep): acquire. The loads may pass the commit; package client settles that.
	if p.sleepers.Load()|p.room.Load() != 0 {
		p.ring(t)
	}
}

func (p *Publisher) ring(t uint64) {
	if p.bell != nil && p.sleepers.Load() != 0 && p.sleepers.Swap(0) != 0 {
		failpoint.Hit(FailBeforeRing)
		_ = p.bell.Ring() // cannot fail but by a closed bell, when nobody of ours sleeps
	}
	p.ringRoom(t)
}

// ringRoom rings for publishers that wait for room if the intent at t, which was cleared or moved on, may be what they wait for: nobody else
// rings for that, where there is no subscriber. A claim and the padding before it are half of the capacity at most, so an intent is in
// nobody's way before tail is half of it ahead; a quarter is to spare. Without this look every frame would wake all who wait until a
// reader makes room. The order is checked by docs/model/room.pml.
func (p *Publisher) ringRoom(t uint64) {
	if p.room.Load() == 0 {
		return
	}
	// SYNC(sleep): who sees the intent has read tail before; so tail is read when nobody sees it any more. A full fence, on a word that
	// is nobody else's.
	arch.StoreFence(&p.fence, 0)
	if p.tail.Load()-t >= (p.mask+1)/4 {
		ringFor(p.room, p.roomBell)
	}
}

// stamp writes a frame's second header word at position at, and then its stamp.
func (p *Publisher) stamp(at, meta uint64) {
	off := at & p.mask
	p.data.setPlain(off+offMeta, meta)
	p.commitStamp(off, at)
}

func (p *Publisher) commitStamp(off, at uint64) {
	// SYNC(commit): release
	if p.fenced {
		arch.StoreFence(p.data.word(off), stampOf(at, p.key))
		return
	}
	arch.StoreRelease(p.data.word(off), stampOf(at, p.key))
}

// stampPadding makes n bytes from at, which do not wrap, one padding frame.
func (p *Publisher) stampPadding(at, n uint64, flags uint8) {
	p.stamp(at, meta(uint32(n-HeaderSize), kindPadding, flags, uint16(p.index)))
}

// TryPublish copies payload into the ring as one frame. ErrBackpressure: there is no
// room now. ErrTooLarge: it is above MaxPayload. The payload is not kept.
//
// The body is reserve, fill, commit and settle written out for the usual case: a frame
// that does not wrap, and a limit that allows it. Without the calls, and what they store and
// load again, it takes two thirds of the time, which decides how far ahead of its
// reader a publisher stays: up to twice the frames a second (docs/performance.md).
// Claim and CommitN are written out in the same way.
func (p *Publisher) TryPublish(payload []byte) error {
	n := uint64(len(payload))
	if n > p.maxPayload {
		return ErrTooLarge
	}
	t, need := p.tail.Load(), frameSize(n)
	off := t & p.mask
	if p.slow || t%CellSize != 0 || off+need > p.mask+1 || int64(p.limit-(t+need)) < 0 {
		return p.publishSlow(payload)
	}
	arch.StoreRelease(&p.slot.bytes, need)
	arch.StoreRelease(&p.slot.intent, t|intentFlag) // SYNC(intent): release, as in reserve
	failpoint.Hit(FailAfterIntent)
	if p.exclusive {
		p.storeTail(t+need, need)
	} else if !p.tail.CompareAndSwap(t, t+need) {
		return p.publishSlow(payload)
	}
	arch.StoreStore() // SYNC(tail): release, as in reserve
	failpoint.Hit(FailAfterClaim)
	if newRun(t, t+need) {
		p.prefetch(t+need, need)
	}
	if isSmall(n) && !failpoint.Enabled {
		p.data.copySmall(off+offPayload, payload)
	} else {
		p.fill(off, payload)
	}
	failpoint.Hit(FailBeforeCommit)
	p.data.setPlain(off+offMeta, meta(uint32(n), kindData, 0, uint16(p.index)))
	arch.StoreRelease(p.data.word(off), stampOf(t, p.key)) // SYNC(commit): release
	failpoint.Hit(FailAfterCommit)
	arch.StoreRelease(&p.slot.intent, 0)
	failpoint.Hit(FailForgotten)
	p.frames++
	arch.StoreRelease(&p.slot.frames, p.frames)
	if p.sleepers.Load()|p.room.Load() != 0 { // SYNC(sleep), as in wake
		p.ring(t)
	}
	return nil
}

// publishSlow is TryPublish for every case.
func (p *Publisher) publishSlow(payload []byte) error {
	if p.held || p.closed {
		return p.unready()
	}
	n := uint64(len(payload))
	if err := p.reserve(frameSize(n)); err != nil {
		return err
	}
	p.fill((p.start+p.pad)&p.mask, payload)
	p.commit(kindData, n)
	p.settle(1)
	return nil
}

// commit stamps the first frame of the claim, of which everything else is written, and
// last of all the claim's first stamp: the frame's, or that of the padding before it.
func (p *Publisher) commit(kind uint8, length uint64) {
	failpoint.Hit(FailBeforeCommit)
	flags := uint8(0)
	if p.pad != 0 {
		flags = flagInner
	}
	p.stamp(p.start+p.pad, meta(uint32(length), kind, flags, uint16(p.index)))
	if p.pad != 0 {
		failpoint.Hit(FailMidWrap)
		p.stampPadding(p.start, p.pad, 0)
	}
}

// fill copies payload behind the header at offset off.
func (p *Publisher) fill(off uint64, payload []byte) {
	if failpoint.Enabled && len(payload) > 1 {
		half := len(payload) / 2
		copy(p.data.bytes(off+offPayload, uint64(half)), payload)
		failpoint.Hit(FailMidCopy)
	}
	copy(p.data.bytes(off+offPayload, uint64(len(payload))), payload)
}

// unready says why nothing can be published.
func (p *Publisher) unready() error {
	if p.closed {
		return ErrClosed
	}
	return ErrClaimed
}

// Abandon closes the publisher without another look at the memory, for when its slot may be
// somebody else's by now: an open claim is left as it is, and its Commit and Abort say
// ErrNotClaimed.
func (p *Publisher) Abandon() { p.closed, p.held, p.slow = true, false, true }

// Close aborts an open claim. The broker frees the slot (CondemnPublisher, RepairPublisher).
func (p *Publisher) Close() error {
	if p.closed {
		return ErrClosed
	}
	if p.held {
		p.abort()
	}
	p.closed, p.slow = true, true
	return nil
}
