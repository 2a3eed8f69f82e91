package gateway

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// verdict is how a turn came out.
type verdict uint8

const (
	drained verdict = iota // nothing more is there to be read
	spent                  // the budget is used up
	over                   // the connection has ended
)

// errUnmeant says that a secure connection was cut off, or left in haste.
var errUnmeant = errors.New("the connection ended without the farewell of TLS (close_notify)")

// errNoProgress says that a Publisher broke its contract.
var errNoProgress = errors.New("the publisher published nothing and reported no error")

// step is run by the source whenever there may be something to read. It takes turns until nothing is left, and returns
// true when the connection has ended.
func (c *conn) step() (ended bool) {
	w, waited := c.in.workers.acquire(c.in.hard.Done())
	for w != nil {
		received, frames := c.received, c.frames
		result := c.turn(w)
		if result == over {
			c.in.workers.release(w)
			return true
		}
		yield := result == drained || c.in.workers.wanted()
		if yield {
			c.bytes.park()
		}
		c.note(waited, c.received > received, c.frames > frames)
		switch {
		case result == drained:
			c.in.workers.release(w)
			c.arm()
			return false
		case yield:
			w, waited = c.in.workers.yield(w, c.in.hard.Done())
		default:
			waited = 0
			runtime.Gosched() // others may be about to ask for a worker, and wait for a processor
		}
	}
	c.abandon()
	return true
}

// note keeps the times for the time-outs, after a turn for which the connection had to wait. Waiting means that the topic
// was full, or that others had their turns: not the sender's fault.
func (c *conn) note(waited time.Duration, bytesCame, framesCame bool) {
	now := c.in.now()
	if bytesCame {
		c.lastRead = now
	}
	switch {
	case c.bytes.len() == 0:
		c.partialSince = 0
	case framesCame || c.partialSince == 0:
		c.partialSince = now
	default:
		c.partialSince += waited
	}
}

// turn reads and publishes up to the budget.
func (c *conn) turn(w *worker) verdict {
	left := c.in.cfg.TurnBudget
	for left > 0 {
		if err := laneOver(w.lane); err != nil { // what is not read is not lost by us: the sender sees that it has not arrived
			c.in.failPublishing(err)
			c.abandon()
			return over
		}
		dst := c.bytes.room(w.buf, c.need)
		dst = dst[:min(len(dst), left)]
		if c.in.stopping.Load() {
			if c.in.hard.Err() != nil {
				c.abandon()
				return over
			}
			if !c.sealed { // or a sender that goes on sending would keep it from ever stopping
				c.src.seal()
				c.sealed = true
			}
		}
		began := c.in.now()
		n, err := c.src.read(dst)
		w.count.reads.Add(1)
		w.count.readTimes.Time(c.in.now() - began)
		switch {
		case err == nil:
		case err == unix.EAGAIN:
			if c.in.stopping.Load() {
				return c.endStopped(w)
			}
			return drained
		case err == io.EOF:
			return c.endOfStream(w)
		case err == io.ErrUnexpectedEOF:
			return c.endUnmeant()
		default:
			c.end(brokenConn, err)
			return over
		}
		w.count.received.Add(uint64(n))
		c.received += uint64(n)
		left -= n
		c.bytes.end += n
		if !c.publishWhole(w) {
			return over
		}
	}
	return spent
}

// abandon ends the connection because the ingress was told to give up.
func (c *conn) abandon() {
	c.in.unread.Add(uint64(c.src.unread()))
	c.end(aborted, nil)
}

// endStopped ends the connection because the ingress stops and all that was received has been read.
func (c *conn) endStopped(w *worker) verdict {
	if c.src.atEOF() {
		return c.endOfStream(w)
	}
	c.end(stopped, nil)
	return over
}

// endOfStream makes what it can of the bytes that are left.
func (c *conn) endOfStream(w *worker) verdict {
	rest := c.bytes.held()
	last, whole := c.cutter.Last(rest)
	switch {
	case whole:
		if c.publish(w, append(w.frames, last)) {
			c.bytes.start = c.bytes.end
			c.end(endOfStream, nil)
		}
	case len(rest) > 0:
		c.end(partialFrame, nil)
	default:
		c.end(endOfStream, nil)
	}
	return over
}

// endUnmeant ends the connection where its end may be somebody else's doing: the bytes that are left are no frame, whatever
// the codec would make of them.
func (c *conn) endUnmeant() verdict {
	if c.bytes.len() > 0 {
		c.end(partialFrame, errUnmeant)
	}
	c.end(endOfStream, nil)
	return over
}

// publishWhole publishes all whole frames that have come. It returns false if the connection has ended.
func (c *conn) publishWhole(w *worker) bool {
	for {
		frames, used, need, err := c.cutter.Cut(w.frames, c.bytes.held())
		ok := c.publish(w, frames)
		c.bytes.start += used
		c.need = need
		switch {
		case !ok:
			c.giveUpRest(w)
			return false
		case err != nil:
			c.end(frameTooLarge, err)
			return false
		case len(frames) < cap(frames):
			return true
		}
	}
}

// publish publishes frames, waiting for room. It returns false if the connection has ended.
func (c *conn) publish(w *worker, frames [][]byte) bool {
	n, err := c.in.publish(w.lane, &w.count, frames)
	c.frames += uint64(n)
	if err != nil {
		c.endUnpublished(err)
		return false
	}
	if c.bytes.own != nil {
		clear(frames) // or these slices would keep a large chunk alive
	}
	return true
}

// publish publishes frames on a lane, waiting for room, and returns how many it has published. It counts these, and those
// that it gave up because of an error.
func (in *Ingress) publish(lane Lane, count *traffic, frames [][]byte) (published int, err error) {
	for todo := frames; len(todo) > 0; {
		began := in.now()
		n, err := lane.PublishBatch(in.hard, todo)
		if n > 0 {
			count.addBatch(n, payloadBytes(todo[:n]), in.now()-began)
			published += n
			todo = todo[n:]
		}
		if err == nil && n <= 0 {
			err = errNoProgress
		}
		if err != nil {
			in.givenUp.Add(uint64(len(todo)))
			return published, err
		}
	}
	return published, nil
}

// endUnpublished ends the connection after a failure to publish, and the ingress too unless it was told to give up.
func (c *conn) endUnpublished(err error) {
	if c.in.hard.Err() != nil {
		c.abandon()
		return
	}
	c.end(publishFailed, err)
	c.in.failPublishing(err)
}

// failPublishing ends the ingress because a lane has failed.
func (in *Ingress) failPublishing(err error) { in.fail(fmt.Errorf("publishing failed: %w", err)) }

// giveUpRest counts the whole frames that were read and will not be published.
func (c *conn) giveUpRest(w *worker) {
	for {
		frames, used, _, err := c.cutter.Cut(w.frames, c.bytes.held())
		c.in.givenUp.Add(uint64(len(frames)))
		c.bytes.start += used
		if err != nil || len(frames) < cap(frames) {
			return
		}
	}
}

func payloadBytes(frames [][]byte) int {
	n := 0
	for _, f := range frames {
		n += len(f)
	}
	return n
}
