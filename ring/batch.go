package ring

import (
	"github.com/hugebus/hugebus/internal/arch"
	"github.com/hugebus/hugebus/internal/failpoint"
)

// FailMidBatch is passed after each frame of a batch but the first has been stamped.
const FailMidBatch = "ring/batch/mid"

// maxBatch bounds what one claim holds, in bytes: a quarter of the capacity, as for a
// single payload, so that a batch and the padding before it always fit.
func (p *Publisher) maxBatch() uint64 { return min((p.mask+1)/4, maxClaim) }

// TryPublishBatch copies payloads into the ring in order, as frames of as few claims
// as it can; the frames of one claim become visible together. It returns how many were
// published, and why not all: ErrBackpressure (the rest may be tried again),
// ErrTooLarge (the next one is above MaxPayload).
func (p *Publisher) TryPublishBatch(payloads [][]byte) (int, error) {
	if p.held || p.closed {
		return 0, p.unready()
	}
	done := 0
	for done < len(payloads) {
		n, size := p.fit(payloads[done:])
		if n == 0 {
			return done, ErrTooLarge
		}
		err := p.reserve(size)
		for err == ErrBackpressure && n > 1 {
			// Some of it may still fit.
			n /= 2
			size = batchSize(payloads[done : done+n])
			err = p.reserve(size)
		}
		if err != nil {
			return done, err
		}
		p.commitBatch(payloads[done : done+n])
		done += n
	}
	return done, nil
}

// fit says how many of payloads one claim can hold, and how many bytes they take.
func (p *Publisher) fit(payloads [][]byte) (n int, size uint64) {
	bound := p.maxBatch()
	for _, b := range payloads {
		if uint64(len(b)) > p.maxPayload {
			break
		}
		s := frameSize(uint64(len(b)))
		if size+s > bound {
			break
		}
		size += s
		n++
	}
	return n, size
}

func batchSize(payloads [][]byte) (size uint64) {
	for _, b := range payloads {
		size += frameSize(uint64(len(b)))
	}
	return size
}

// commitBatch writes payloads into the claim that is open for them. All frames are
// stamped as inner ones but the first of the claim, which is stamped last: that
// one store commits them all.
func (p *Publisher) commitBatch(payloads [][]byte) {
	first := p.start + p.pad
	at := first + frameSize(uint64(len(payloads[0])))
	for rest := payloads[1:]; len(rest) > 0; {
		run := rest[:min(len(rest), batchRun)]
		rest = rest[len(run):]
		if !p.fenced && isSmall(uint64(len(run[0]))) {
			size := uint64(len(run)) * frameSize(uint64(len(run[0])))
			for done := uint64(0); done < size; done += prefetchRun { // at+done may wrap
				p.prefetch(at+done, CellSize)
			}
			var n int
			n, at = p.fillSmall(at, run)
			run = run[n:]
		}
		at = p.fillInner(at, run)
	}
	p.fill(first&p.mask, payloads[0])
	p.commit(kindData, uint64(len(payloads[0])))
	p.settle(uint64(len(payloads)))
}

// batchRun is how many frames of a batch are written before they are stamped: few enough to be in the nearest cache still.
const batchRun = 32

// fillInner writes and stamps frames that are not the first of their claim, from position at on, and returns where they end: payloads first,
// then headers, since one loop with calls, and one without, take less than a loop with both.
func (p *Publisher) fillInner(at uint64, payloads [][]byte) uint64 {
	to := at
	for _, b := range payloads {
		p.fill(to&p.mask, b)
		next := to + frameSize(uint64(len(b)))
		if newRun(to, next) {
			p.prefetch(next, next-to)
		}
		to = next
	}
	return p.stampInner(at, payloads)
}

// stampInner stamps frames that are not the first of their claim, from position at on, and returns where they end.
func (p *Publisher) stampInner(at uint64, payloads [][]byte) uint64 {
	data, mask, key, source := p.data, p.mask, p.key, uint16(p.index)
	for _, b := range payloads {
		off := at & mask
		data.setPlain(off+offMeta, meta(uint32(len(b)), kindData, flagInner, source))
		if p.fenced {
			arch.StoreFence(data.word(off), stampOf(at, key)) // SYNC(commit): release
		} else {
			arch.StoreRelease(data.word(off), stampOf(at, key)) // SYNC(commit): release
		}
		failpoint.Hit(FailMidBatch)
		at += frameSize(uint64(len(b)))
	}
	return at
}
