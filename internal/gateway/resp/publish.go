package resp

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
)

// maxTopics is how many topics a gateway publishes to, and reads, at most: each takes a slot of its topic, and memory here.
const maxTopics = 4096

var errTooManyTopics = errors.New("the gateway has 4096 topics in use, and that is the limit: use one topic for all channels (--resp-topic)")

// outlet is a lane that connections share.
type outlet struct {
	topic  string
	opened chan struct{} // closed when all of these are set
	max    int
	failed error

	mu   sync.Mutex
	lane Lane
	gone bool // after a failure; outlets has another by then
}

// outletFor returns the outlet of a topic, opened if need be. Who publishes to other topics does not wait for that.
func (s *Server) outletFor(topic string) (*outlet, error) {
	s.outletMu.Lock()
	o := s.outlets[topic]
	switch {
	case o != nil:
		s.outletMu.Unlock()
	case len(s.outlets) >= maxTopics:
		s.outletMu.Unlock()
		return nil, errTooManyTopics
	default:
		o = &outlet{topic: topic, opened: make(chan struct{})}
		s.outlets[topic] = o
		s.outletMu.Unlock()
		if o.failed = s.open(o); o.failed != nil {
			s.drop(o)
		}
		close(o.opened)
	}
	<-o.opened
	return o, o.failed
}

// open attaches to the outlet's topic.
func (s *Server) open(o *outlet) (err error) {
	if o.lane, err = s.cfg.Bus.Lane(s.ctx, o.topic); err != nil {
		return err
	}
	o.max = o.lane.MaxPayload()
	if s.cfg.Topic == "" && s.subs.wanted(o.topic) {
		// The lane may have made the topic, and somebody may have a pattern that it matches.
		s.openWanted(o.topic)
	}
	return nil
}

// drop takes an outlet out of the list.
func (s *Server) drop(o *outlet) {
	s.outletMu.Lock()
	defer s.outletMu.Unlock()
	if s.outlets[o.topic] == o {
		delete(s.outlets, o.topic)
	}
}

// publish publishes frames, and returns how many.
func (s *Server) publish(o *outlet, frames [][]byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return 0, errors.New("the topic was lost meanwhile: try again")
	}
	done := 0
	for done < len(frames) {
		n, err := o.lane.PublishBatch(s.hard, frames[done:])
		done += n
		s.published.Add(uint64(n))
		if err == nil && n > 0 {
			continue
		}
		if s.hard.Err() != nil {
			return done, context.Cause(s.hard)
		}
		o.gone = true
		s.drop(o)
		return done, errors.Join(err, o.lane.Close())
	}
	return done, nil
}

// closeOutlets closes all lanes. Nobody publishes any more.
func (s *Server) closeOutlets() error {
	var errs []error
	for _, o := range s.outlets {
		errs = append(errs, o.lane.Close())
	}
	return errors.Join(errs...)
}

// pending are PUBLISHes to one topic that were read and not published yet. Their frames are parts of the read buffer.
type pending struct {
	outlet    *outlet
	frames    [][]byte
	receivers []int
}

// joinFrame makes one frame of a channel and a payload that stand in b, in this order: it moves the channel up to the payload, with its
// length in front. There is room: what stood between them, and before the channel, was part of the command. It returns false
// if there is none, which no command that parser cuts can cause.
func joinFrame(b []byte, channel, payload span) ([]byte, bool) {
	n := channel.to - channel.from
	start := payload.from - n - 2
	if start < 0 || channel.to > payload.from || n > 0xffff {
		return nil, false
	}
	copy(b[start+2:], b[channel.from:channel.to])
	binary.BigEndian.PutUint16(b[start:], uint16(n))
	return b[start:payload.to:payload.to], true
}
