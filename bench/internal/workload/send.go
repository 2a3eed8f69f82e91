package workload

import "github.com/hugebus/hugebus/client"

// A sender publishes numbered payloads in the way that the parameters say.
type sender struct {
	end  *end
	w    *writer
	next uint64 // sequence number of the next frame
	// publisher is added to every number, where there are several.
	publisher uint64
}

func newSender(e *end) *sender {
	return &sender{end: e, w: newWriter(e.params.Size, e.params.Batch)}
}

// send publishes n frames, at most a batch, in one call if a call takes more than one.
// mark is added to the last sequence number.
func (s *sender) send(n int, mark uint64) error {
	if n == 1 {
		seq := s.next
		s.next++
		mark |= s.publisher
		if s.end.params.Claim {
			return s.claim(seq, mark)
		}
		return s.copyOne(seq, mark)
	}
	slots := s.w.slots[:n]
	for i, b := range slots {
		setSeq(b, (s.next+uint64(i))|s.publisher)
	}
	first := firstSample(s.next)
	for i := first; i < n; i += sampleEvery {
		fillBody(slots[i], s.next+uint64(i))
	}
	if mark != 0 {
		setSeq(slots[n-1], (s.next+uint64(n-1))|s.publisher|mark)
	}
	err := s.batch(slots)
	for i := first; i < n; i += sampleEvery {
		fillBody(slots[i], 0)
	}
	s.next += uint64(n)
	return err
}

// ones publishes one at a time up to sequence number end, in a loop as a user would
// write it: what send decides for each frame takes as long as a publish.
func (s *sender) ones(end uint64) error {
	if s.end.params.Claim {
		return s.claims(end)
	}
	lane, b := s.end.lane, s.w.one
	for s.next < end {
		seq := s.next
		if sampled(seq) {
			if err := s.send(1, 0); err != nil {
				return err
			}
			continue
		}
		setSeq(b, seq)
		if err := lane.TryPublish(b); err != nil {
			if err != client.ErrBackpressure {
				return err
			}
			if err := s.publish(b); err != nil {
				return err
			}
		}
		s.next++
	}
	return nil
}

// claims is ones in place.
func (s *sender) claims(end uint64) error {
	lane, body, size := s.end.lane, s.w.one[MinPayload:], s.end.params.Size
	if s.end.params.SeqOnly {
		body = nil
	}
	for s.next < end {
		seq := s.next
		if sampled(seq) {
			if err := s.send(1, 0); err != nil {
				return err
			}
			continue
		}
		c, err := lane.TryClaim(size)
		if err == client.ErrBackpressure {
			c, err = s.room()
		}
		if err != nil {
			return err
		}
		copy(c.Payload[MinPayload:], body)
		setSeq(c.Payload, seq)
		if err := c.Commit(); err != nil {
			return err
		}
		s.next++
	}
	return nil
}

func (s *sender) batch(slots [][]byte) error {
	if !s.end.poll {
		_, err := s.end.lane.PublishBatch(s.end.ctx, slots)
		return err
	}
	for {
		n, err := s.end.lane.TryPublishBatch(slots)
		if err != client.ErrBackpressure {
			return err
		}
		slots = slots[n:]
		s.end.full()
	}
}

func (s *sender) copyOne(seq, mark uint64) error {
	b := s.w.one
	setSeq(b, seq|mark)
	if !sampled(seq) {
		return s.publish(b)
	}
	fillBody(b, seq)
	err := s.publish(b)
	fillBody(b, 0)
	return err
}

func (s *sender) publish(b []byte) error {
	if !s.end.poll {
		return s.end.lane.Publish(s.end.ctx, b)
	}
	for {
		err := s.end.lane.TryPublish(b)
		if err != client.ErrBackpressure {
			return err
		}
		s.end.full()
	}
}

// claim writes one frame in place.
func (s *sender) claim(seq, mark uint64) error {
	c, err := s.room()
	if err != nil {
		return err
	}
	if sampled(seq) {
		fillBody(sample(c.Payload, s.end.params.SeqOnly), seq)
	} else if !s.end.params.SeqOnly {
		copy(c.Payload[MinPayload:], s.w.one[MinPayload:])
	}
	setSeq(c.Payload, seq|mark)
	return c.Commit()
}

func (s *sender) room() (client.Claim, error) {
	size := s.end.params.Size
	if !s.end.poll {
		return s.end.lane.Claim(s.end.ctx, size)
	}
	for {
		c, err := s.end.lane.TryClaim(size)
		if err != client.ErrBackpressure {
			return c, err
		}
		s.end.full()
	}
}
