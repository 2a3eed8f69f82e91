package workload

import (
	"errors"
	"time"

	"github.com/hugebus/hugebus/bench/internal/link"
	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
)

// The roles of the two sides of a link.
const (
	RolePeerPing    = "peer/ping"
	RolePeerEcho    = "peer/echo"
	RolePeerPublish = "peer/publish"
	RolePeerConsume = "peer/consume"
)

// PeerParams are what both sides of a round over a link are told.
type PeerParams struct {
	link.Spec
	// Batch is how many payloads go between two flushes.
	Batch int `json:"batch"`
	// Count and Nanoseconds bound what is timed; 0: no bound.
	Count       int64 `json:"count"`
	Nanoseconds int64 `json:"ns"`
	// Warm is how many payloads are sent before the clock runs.
	Warm uint64 `json:"warm"`
	// Pinned keeps it on the worker's thread and core, with the garbage collector off.
	Pinned bool `json:"pinned"`
}

// overLink makes a role of a function over one end of a link.
func overLink(side link.Side, do func(link.Link, PeerParams) (any, error)) worker.Role {
	return overLinkOf(side, func(p PeerParams) PeerParams { return p }, do)
}

// overLinkOf is overLink for parameters that hold those of a link.
func overLinkOf[P any](side link.Side, of func(P) PeerParams, do func(link.Link, P) (any, error)) worker.Role {
	role := func(t *worker.Task) (any, error) {
		var p P
		if err := t.Decode(&p); err != nil {
			return nil, err
		}
		l, err := link.Open(of(p).Spec, side)
		if err != nil {
			return nil, err
		}
		if err := t.Await(); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		result, err := do(l, p)
		return result, errors.Join(err, l.Close())
	}
	return func(t *worker.Task) (any, error) {
		var p P
		if err := t.Decode(&p); err != nil {
			return nil, err
		}
		if of(p).Pinned {
			return role(t)
		}
		return worker.Application(role)(t)
	}
}

// peerRoles are the workloads over links.
func peerRoles() map[string]worker.Role {
	return map[string]worker.Role{
		RolePeerPing:    overLink(link.Front, peerPing),
		RolePeerEcho:    overLink(link.Back, peerEcho),
		RolePeerPublish: overLink(link.Front, peerPublish),
		RolePeerConsume: overLink(link.Back, peerConsume),
	}
}

// A linkSender sends numbered payloads.
type linkSender struct {
	link link.Link
	w    *writer
	next uint64
}

// send sends one payload, without a flush. mark is added to its number.
func (s *linkSender) send(mark uint64) error {
	seq := s.next
	s.next++
	b := s.w.one
	prepare(b, seq)
	setSeq(b, seq|mark)
	err := s.link.Send(b)
	restore(b, seq)
	return err
}

// peerPing makes round trips and times each; its result is a histogram.
func peerPing(l link.Link, p PeerParams) (any, error) {
	s, r := &linkSender{link: l, w: newWriter(p.Size, 1)}, newReader(p.Size, false, false)
	handle := func(b []byte) error { // made once, as in the others: what a trip allocates is a page to fault in, now and then
		_, err := r.check(b)
		return err
	}
	trip := func(mark uint64) error {
		if err := errors.Join(s.send(mark), l.Flush()); err != nil {
			return err
		}
		return l.Receive(handle)
	}
	start := time.Now()
	for s.next < p.Warm && time.Since(start) < warmTime {
		if err := trip(0); err != nil {
			return nil, err
		}
	}
	h := report.NewHistogram()
	start = time.Now()
	for i := int64(0); p.Count == 0 || i < p.Count; i++ {
		before := time.Since(start)
		if err := trip(0); err != nil {
			return nil, err
		}
		after := time.Since(start)
		h.Record(int64(after - before))
		if p.Nanoseconds != 0 && after > time.Duration(p.Nanoseconds) {
			break
		}
	}
	return h, trip(endBit)
}

// peerEcho sends every payload back. It has no result.
func peerEcho(l link.Link, p PeerParams) (any, error) {
	done := false
	handle := func(b []byte) error {
		done = getSeq(b) >= endBit
		return l.Send(b)
	}
	for !done {
		if err := errors.Join(l.Receive(handle), l.Flush()); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// peerClockEvery is how many payloads are sent between two looks at the clock.
const peerClockEvery = 64

// peerPublish sends until a bound is reached, and waits for the reader's word that all of it
// arrived: some systems drop what is on its way when one side closes.
func peerPublish(l link.Link, p PeerParams) (any, error) {
	s := &linkSender{link: l, w: newWriter(p.Size, 1)}
	flushed := s.next
	send := func(mark uint64) error {
		err := s.send(mark)
		if err == nil && (mark != 0 || s.next-flushed >= uint64(p.Batch)) {
			flushed = s.next
			err = l.Flush()
		}
		return err
	}
	for s.next <= p.Warm {
		if err := send(0); err != nil {
			return nil, err
		}
	}
	start, first := time.Now(), s.next
	for n := int64(0); ; n++ {
		last := p.Count != 0 && int64(s.next-first) >= p.Count-1 ||
			p.Nanoseconds != 0 && n%peerClockEvery == 0 && time.Since(start) > time.Duration(p.Nanoseconds)
		mark := uint64(0)
		if last {
			mark = endBit
		}
		if err := send(mark); err != nil {
			return nil, err
		}
		if last {
			return nil, l.Receive(func([]byte) error { return nil })
		}
	}
}

// peerConsume checks every payload; its result is a report.Rate.
func peerConsume(l link.Link, p PeerParams) (any, error) {
	r := newReader(p.Size, false, false)
	var start time.Time
	done := false
	handle := func(b []byte) error {
		seq, err := r.check(b)
		if seq&^endBit == p.Warm {
			start = time.Now()
		}
		done = done || seq >= endBit
		return err
	}
	for !done {
		if err := l.Receive(handle); err != nil {
			return nil, err
		}
	}
	rate := report.Rate{Frames: int64(r.want - 1 - p.Warm), Nanoseconds: int64(time.Since(start))}
	return rate, errors.Join((&linkSender{link: l, w: newWriter(p.Size, 1)}).send(endBit), l.Flush())
}
