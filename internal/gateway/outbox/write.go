package outbox

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

const (
	maxVectors = 64       // of one write to a peer that lags: it has little room
	maxPiece   = 16 << 10 // bytes of one write to a TLS connection: a record
)

// vectors are lent for one write: who lags is one of many, and idle ones need none.
var vectors = sync.Pool{New: func() any { v := make([]unix.Iovec, 0, maxVectors); return &v }}

// writeQueue writes until nothing waits (nil) or the peer takes no more (unix.EAGAIN). The caller holds mu.
func (o *Outbox) writeQueue(fd int) error {
	v := vectors.Get().(*[]unix.Iovec)
	defer func() { clear(*v); vectors.Put(v) }()
	for o.nextPrivate(); o.queued > 0 || len(o.private) > 0; o.nextPrivate() {
		iov := (*v)[:0]
		if len(o.private) > 0 {
			iov = append(iov, vector(o.private))
		}
		if o.gap == (Gap{}) { // or its mark comes between
			for _, s := range o.queue[o.first:min(len(o.queue), o.first+maxVectors-1)] {
				iov = append(iov, vector(s.Bytes()))
			}
		}
		*v = iov
		n, err := sys.Writev(fd, iov)
		o.shared.Writes.Add(1)
		if err != nil {
			return err
		}
		o.took(n)
	}
	return nil
}

// nextPrivate puts the mark of a gap where it belongs: behind the rest of the frame that the peer was in.
func (o *Outbox) nextPrivate() {
	if len(o.private) > 0 || o.gap == (Gap{}) {
		return
	}
	o.private = o.shared.Mark(make([]byte, 0, maxMark), o.gap)
	o.gap = Gap{}
}

// took removes n bytes that the peer has taken. The caller holds mu.
func (o *Outbox) took(n int) {
	o.progress++
	o.shared.Bytes.Add(uint64(n))
	if p := min(n, len(o.private)); p > 0 {
		n -= p
		if o.private = o.private[p:]; len(o.private) == 0 {
			o.unpin()
		}
	}
	o.queued -= n
	o.shared.Queued.Add(-int64(n))
	for n > 0 {
		s := &o.queue[o.first]
		if n < s.Len() {
			s.from += uint32(n)
			return
		}
		n -= s.Len()
		s.Drop()
		*s = Segment{}
		o.first++
	}
	if o.first == len(o.queue) {
		o.queue, o.first = o.queue[:0], 0
		if cap(o.queue) > maxVectors {
			o.queue = nil // one bad moment must not cost memory for ever
		}
	}
}

// wait writes the queue as the peer makes room, and ends when it is empty. One goroutine a peer, while something waits.
func (o *Outbox) wait() {
	for {
		before := o.arm()
		err := o.raw.Write(o.more)
		if err == nil || !o.goOn(before, err) {
			return
		}
	}
}

// arm sets the deadline for progress, and returns the progress so far.
func (o *Outbox) arm() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shared.WriteTimeout > 0 && !o.closed {
		_ = o.conn.SetWriteDeadline(time.Now().Add(o.shared.WriteTimeout)) // fails only on a closed connection, which the write says as well
	}
	return o.progress
}

// writeMore is for RawConn.Write: it returns false to wait for room.
func (o *Outbox) writeMore(fd uintptr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		o.rest()
		return true
	}
	err := o.writeQueue(int(fd))
	switch {
	case err == unix.EAGAIN:
		return false
	case err != nil:
		o.end(err)
	}
	o.rest()
	return true
}

// rest notes that nobody waits any more. The caller holds mu.
func (o *Outbox) rest() {
	o.waiting = false
	o.shared.Waiting.Add(-1)
	if o.last {
		o.end(io.EOF)
	}
}

// goOn says whether a failed wait is to be tried again: the deadline passed, and the peer took something since it was set.
func (o *Outbox) goOn(before uint64, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case o.closed:
	case late && o.progress != before:
		return true
	case late:
		o.end(ErrWriteTimeout)
	default:
		o.end(err)
	}
	o.rest()
	return false
}

// pieces are lent to TLS connections that are written to. (TLS encrypts a copy for each peer in any case; without a copy here, a
// peer that takes nothing would hold the block that it is in.)
var pieces = sync.Pool{New: func() any { b := make([]byte, maxPiece); return &b }}

// pump is wait for a connection that is no bare socket.
func (o *Outbox) pump() {
	buf := pieces.Get().(*[]byte)
	defer pieces.Put(buf)
	for {
		o.arm()
		piece := o.take(*buf)
		if len(piece) == 0 {
			return
		}
		for len(piece) > 0 {
			n, err := o.conn.Write(piece)
			piece = piece[n:]
			o.shared.Writes.Add(1)
			if err != nil {
				o.broken(err)
				return
			}
		}
	}
}

// broken ends the outbox after a failed write: a TLS connection is of no use then, also where only a deadline passed.
func (o *Outbox) broken(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrWriteTimeout
	}
	o.end(err)
	o.rest()
}

// take moves what comes next to b, and returns it; nothing ends the pump.
func (o *Outbox) take(b []byte) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for !o.closed && n < len(b) {
		o.nextPrivate()
		from := o.private
		if len(from) == 0 {
			if o.first == len(o.queue) {
				break
			}
			from = o.queue[o.first].Bytes()
		}
		k := copy(b[n:], from)
		n += k
		o.took(k)
	}
	if n == 0 {
		o.rest()
	}
	return b[:n]
}
