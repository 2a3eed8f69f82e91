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

// A JoinerSpec describes a process that joins, reads for a while, leaves, and joins again: at the latest frame, the earliest, or
// where it left, and with any policy.
type JoinerSpec struct {
	Common
	Seed uint64
	// EvictLag is the bound of its evicting subscriptions, in bytes.
	EvictLag int64
	// Stay is the longest that a subscription lasts; Rest is the longest time in between.
	Stay, Rest time.Duration
}

// joiner is one at work.
type joiner struct {
	reader
	spec   JoinerSpec
	c      *client.Client
	random *rand.Rand
	left   client.Position // where the last subscription ended
	joins  int
}

// Join joins and leaves until control says stop. It writes "ready" when it is connected, and "done FRAMES 0" when it has ended
// and nothing of it is left in its process.
func Join(spec JoinerSpec, control *Control, out, say io.Writer) error {
	before, c, err := spec.begin(control)
	if c == nil {
		return err
	}
	j := &joiner{spec: spec, c: c, random: rand.New(rand.NewPCG(spec.Seed, 3))}
	j.control, j.journal = control, NewJournal(out, false)
	j.reader.spec.Limit = 64
	if _, err := fmt.Fprintln(say, "ready"); err != nil {
		return err
	}
	for err == nil && !control.stopped.Load() {
		err = j.visit()
	}
	if err != nil {
		err = fmt.Errorf("chaos: %s, subscription %d, after %d frames, the last at %d: %w", spec.Name, j.joins, j.frames, j.last, err)
	}
	if err := errors.Join(err, j.journal.Flush(), c.Close(), before.Left()); err != nil {
		return err
	}
	_, err = fmt.Fprintln(say, "done", j.frames, 0)
	return err
}

// visit is one subscription.
func (j *joiner) visit() error {
	o := client.SubscriberOptions{Name: j.spec.Name, Policy: []client.Policy{client.Reliable, client.Lossy, client.Evict}[j.random.IntN(3)]}
	missing := MissNothing
	switch o.Policy {
	case client.Evict:
		o.EvictLag = j.spec.EvictLag
	case client.Lossy:
		missing = MissAny
	}
	resumes, at := false, client.Position(0)
	switch n := j.random.IntN(3); {
	case n == 0:
		o.Start = client.Earliest()
	case n == 1 && j.joins > 0:
		resumes, at = true, j.left
		o.Start = client.At(at)
		if missing == MissNothing {
			missing = MissAtStart
		}
	}
	var s *client.Subscriber
	err := j.control.attaching(func(ctx context.Context) (err error) {
		s, err = j.c.Subscriber(ctx, j.spec.Topic, o)
		return err
	})
	if err != nil {
		return j.control.unlessStopped(err)
	}
	j.joins++
	if !resumes {
		at = s.Position()
	}
	j.from, j.sub = s, s
	if err := j.journal.Add(Record{Kind: KindJoin, Position: uint64(at), Sequence: uint64(missing)}); err != nil {
		return err
	}
	if err := j.stay(); err != nil {
		return err
	}
	j.left = s.Position()
	if err := errors.Join(j.journal.Add(Record{Kind: KindLeft}), j.journal.Flush(), s.Close()); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(j.random.Int64N(int64(j.spec.Rest)))):
	case <-j.control.ctx.Done():
	}
	return nil
}

// stay reads for some time.
func (j *joiner) stay() error {
	ctx, cancel := context.WithTimeout(j.control.ctx, time.Duration(j.random.Int64N(int64(j.spec.Stay))))
	defer cancel()
	for ctx.Err() == nil {
		n, err := j.from.Poll(j.reader.spec.Limit, j.handle)
		if err != nil {
			if err := j.interrupted(err); err != nil {
				return err
			}
			continue
		}
		if n > 0 {
			continue
		}
		if err := j.idle(); err != nil {
			return err
		}
		if err := j.from.Wait(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
