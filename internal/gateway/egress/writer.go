package egress

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/gateway/outbox"
)

// maxBacklog is how many bytes wait for a writer before the reader waits too: some rounds of large writes.
const maxBacklog = 256 << 10

// A writer sends what was read to its share of the clients.
type writer struct {
	e *Egress

	mu      sync.Mutex
	changed sync.Cond
	clients []*client // in any order; each has an outbox
	dirty   bool      // clients differ from the list that run uses
	fill    *outbox.Batch
	spare   *outbox.Batch
	history []outbox.Segment // what newcomers are sent first
	kept    int              // bytes of it
	over    bool             // nothing comes any more

	frames  atomic.Uint64 // frames times clients
	batches atomic.Uint64 // batches times clients
	rounds  atomic.Uint64

	roundFrames door.Histogram // frames of each batch
	roundTimes  door.Histogram // nanoseconds for which a batch was sent to all clients
}

func newWriter(e *Egress) *writer {
	w := &writer{e: e, fill: new(outbox.Batch), spare: new(outbox.Batch)}
	w.changed.L = &w.mu
	return w
}

// feed gives the writer a segment, and waits while it is far behind. The reference stays the caller's.
func (w *writer) feed(s outbox.Segment, frames int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Hold()
	for w.fill.Bytes() > 0 && w.fill.Bytes()+s.Len() > maxBacklog || !w.fill.Add(s, frames) {
		w.changed.Wait()
	}
	w.changed.Broadcast()
}

// finish ends run, after what was fed.
func (w *writer) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.changed.Broadcast()
}

// run sends until finish.
func (w *writer) run() {
	var clients []*client
	for {
		batch, newer, ok := w.next(clients)
		clients = newer
		if !ok {
			return
		}
		w.rounds.Add(1)
		w.roundFrames.Add(uint64(batch.Frames()))
		sent, began := uint64(0), time.Now()
		for _, c := range clients {
			if !c.out.Load().Send(batch, c.before.bytes) {
				continue
			}
			sent++
			w.frames.Add(uint64(batch.Frames() - c.before.frames))
			c.before = extent{} // that of its first batch
		}
		w.roundTimes.Time(time.Since(began))
		w.batches.Add(sent)
		batch.Reset()
		w.mu.Lock()
		w.spare = batch
		w.mu.Unlock()
	}
}

// next waits for a batch, and returns it with the clients that are to get it.
func (w *writer) next(clients []*client) (*outbox.Batch, []*client, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.fill.Bytes() == 0 {
		if w.over {
			w.forget(0)
			return nil, nil, false
		}
		w.changed.Wait()
	}
	batch := w.fill
	w.fill, w.spare = w.spare, nil
	w.changed.Broadcast()
	if w.e.cfg.History > 0 {
		w.remember(batch)
	}
	if w.dirty {
		clear(clients)
		clients, w.dirty = append(clients[:0], w.clients...), false
	}
	return batch, clients, true
}

// remember keeps what newcomers get. The caller holds mu.
func (w *writer) remember(b *outbox.Batch) {
	for s := range b.Segments() {
		s.Hold()
		w.history = append(w.history, s)
		w.kept += s.Len()
	}
	w.forget(w.e.cfg.History)
}

// forget drops history down to so many bytes. The caller holds mu.
func (w *writer) forget(limit int) {
	n := 0
	for ; w.kept > limit; n++ {
		w.kept -= w.history[n].Len()
		w.history[n].Drop()
	}
	w.history = append(w.history[:0], w.history[n:]...)
}

// join adds a client: it gets what is fed from now on, after the history. What was fed before and waits for the next round is
// not for it, unless what came before that is.
func (w *writer) join(c *client, out *outbox.Outbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.history {
		out.Queue(s)
	}
	out.Flush()
	if w.e.cfg.History == 0 {
		c.before = extent{w.fill.Bytes(), w.fill.Frames()}
	}
	c.index = len(w.clients)
	w.clients = append(w.clients, c)
	w.dirty = true
}

// leave takes a client out. It may be in the round that runs.
func (w *writer) leave(c *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.clients) - 1
	w.clients[c.index] = w.clients[last]
	w.clients[c.index].index = c.index
	w.clients[last] = nil
	w.clients = w.clients[:last]
	w.dirty = true
}
