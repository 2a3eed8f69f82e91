package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/hugebus/hugebus/client"
)

// A Style says how a publisher process publishes.
type Style string

// The styles.
const (
	Single Style = "single" // one at a time
	Batch  Style = "batch"  // up to 16 at a time
	Claims Style = "claims" // in place; some claims are aborted, some are larger than their frame
	Mixed  Style = "mixed"  // all of these at random
)

// A PublisherSpec describes a publisher process.
type PublisherSpec struct {
	Common
	// Publisher is its number, which no other publisher of the topic ever has.
	Publisher uint32
	// Place is its place in the Progress.
	Place int
	// Style is how it publishes.
	Style Style
	// MaxPayload is the most bytes of a payload.
	MaxPayload int
	// Count ends it after that many frames; 0 means when it is told to stop.
	Count uint64
	// Shared publishes through a Publisher instead of a Lane.
	Shared bool
	// Pause is the longest rest between two steps; each is of random length, and one in Long is 100 times as long. 0: none.
	Pause time.Duration
	Long  int
	// Burst is how many steps go without a rest; 0 is 1.
	Burst int
	// Hold is the longest time for which a claim is held before it is committed, one every holdPause. 0: none.
	Hold time.Duration
}

// holdPause is the time from one claim that is held to the next.
const holdPause = 5 * time.Second

// maxBatch is the most frames of one PublishBatch.
const maxBatch = 16

// publishing is what Lane and Publisher have in common.
type publishing interface {
	Publish(ctx context.Context, payload []byte) error
	PublishBatch(ctx context.Context, payloads [][]byte) (int, error)
	Claim(ctx context.Context, n int) (client.Claim, error)
	Close() error
}

// publisher is a publisher at work.
type publisher struct {
	spec   PublisherSpec
	tally  tally
	to     publishing
	random *rand.Rand
	seq    uint64 // published so far
	steps  int
	held   time.Time // when a claim was held last
	bufs   [maxBatch][]byte
}

// Publish publishes until control says stop, or its count is reached. It writes "ready" to say when it is attached,
// and "done FRAMES LONGEST" when it has ended and nothing of it is left in its process but p; LONGEST is how long its
// slowest call took, in ns. If an operator takes a claim of its away it says "revoked", and ends.
func Publish(spec PublisherSpec, control *Control, p *Progress, say io.Writer) error {
	before, c, err := spec.begin(control)
	if c == nil {
		return err
	}
	w := &publisher{spec: spec, tally: p.at(spec.Place), random: rand.New(rand.NewPCG(uint64(spec.Publisher), 1))}
	for i := range w.bufs {
		w.bufs[i] = make([]byte, spec.MaxPayload)
	}
	if err := control.attaching(func(ctx context.Context) error { return w.attach(ctx, c) }); err != nil {
		return errors.Join(control.unlessStopped(err), c.Close())
	}
	if _, err := fmt.Fprintln(say, "ready"); err != nil {
		return err
	}
	longest := time.Duration(0)
	for began := time.Now(); err == nil && !control.stopped.Load() && (spec.Count == 0 || w.seq < spec.Count); w.steps++ {
		err = w.step(control.ctx)
		now := time.Now()
		longest = max(longest, now.Sub(began))
		began = now
		if spec.Pause > 0 && err == nil && w.steps%max(spec.Burst, 1) == 0 {
			w.rest(control.ctx)
			began = time.Now()
		}
	}
	if errors.Is(err, context.Canceled) {
		err = nil // told to stop while it waited for room: nothing was published
	}
	if errors.Is(err, client.ErrClaimRevoked) {
		if _, err = fmt.Fprintln(say, "revoked"); err != nil { // by an operator: nothing of it was published, and this is the end
			return err
		}
	}
	if err := errors.Join(err, w.to.Close(), c.Close(), before.Left()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(say, "done", w.seq, longest.Nanoseconds())
	return err
}

// rest pauses.
func (w *publisher) rest(ctx context.Context) {
	d := time.Duration(w.random.Int64N(int64(w.spec.Pause)))
	if w.spec.Long > 0 && w.random.IntN(w.spec.Long) == 0 {
		d = 100 * w.spec.Pause
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (w *publisher) attach(ctx context.Context, c *client.Client) (err error) {
	o := client.PublisherOptions{Name: w.spec.Name, Wait: w.spec.Wait}
	if w.spec.Shared {
		w.to, err = c.Publisher(ctx, w.spec.Topic, o)
	} else {
		w.to, err = c.Lane(ctx, w.spec.Topic, o)
	}
	return err
}

// step publishes one frame, or one batch.
func (w *publisher) step(ctx context.Context) error {
	style := w.spec.Style
	if style == Mixed {
		style = []Style{Single, Batch, Claims}[w.random.IntN(3)]
	}
	switch style {
	case Batch:
		return w.batch(ctx, 1+w.random.IntN(maxBatch))
	case Claims:
		return w.claim(ctx)
	}
	b := w.fill(0)
	w.tally.try(w.seq + 1)
	if err := w.to.Publish(ctx, b); err != nil {
		return err
	}
	w.did(1)
	return nil
}

// fill is the payload of the i-th frame to come.
func (w *publisher) fill(i int) []byte {
	seq := w.seq + uint64(i)
	b := w.bufs[i][:Length(w.spec.Publisher, seq, w.spec.MaxPayload)]
	Fill(b, w.spec.Publisher, seq)
	return b
}

func (w *publisher) did(n int) {
	w.seq += uint64(n)
	w.tally.done(w.seq)
}

func (w *publisher) batch(ctx context.Context, n int) error {
	if w.spec.Count != 0 {
		n = int(min(uint64(n), w.spec.Count-w.seq))
	}
	var payloads [maxBatch][]byte
	for i := range n {
		payloads[i] = w.fill(i)
	}
	w.tally.try(w.seq + uint64(n))
	done, err := w.to.PublishBatch(ctx, payloads[:n])
	w.did(done)
	return err
}

// claim publishes one frame in place, and now and then gives a claim up first.
func (w *publisher) claim(ctx context.Context) error {
	if w.random.IntN(4) == 0 {
		c, err := w.to.Claim(ctx, w.random.IntN(w.spec.MaxPayload+1))
		if err != nil {
			return err
		}
		for i := range c.Payload {
			c.Payload[i] = 0xAB // nobody must ever see it
		}
		if err := c.Abort(); err != nil {
			return err
		}
	}
	n := Length(w.spec.Publisher, w.seq, w.spec.MaxPayload)
	room := n
	if w.random.IntN(2) == 0 {
		room += w.random.IntN(w.spec.MaxPayload - n + 1)
	}
	c, err := w.to.Claim(ctx, room)
	if err != nil {
		return err
	}
	w.tally.try(w.seq + 1)
	Fill(c.Payload[:n], w.spec.Publisher, w.seq)
	if w.spec.Hold > 0 && time.Since(w.held) > holdPause {
		w.held = time.Now()
		select {
		case <-time.After(time.Duration(w.random.Int64N(int64(w.spec.Hold)))):
		case <-ctx.Done():
		}
	}
	if err := c.CommitN(n); err != nil {
		return err
	}
	w.did(1)
	return nil
}
