package resp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// outlet is a lane that connections share.
type outlet struct {
	topic  string
	opened chan struct{} // closed when all of these are set
	max    int
	failed error

	mu   sync.Mutex
	lane Lane
	gone bool // after a failure; outlets has another by then

	users int    // connections that have something for it; guarded by Server.outletMu
	last  uint64 // when it had the last one; guarded by Server.outletMu
}

// acquire returns the outlet of a topic, opened if need be, for which it waits until ctx ends. Who publishes to other topics does not wait
// for that. It is not given back to the broker before release.
func (s *Server) acquire(ctx context.Context, topic string) (*outlet, error) {
	o, mine, idle := s.reserve(topic)
	if o == nil {
		return nil, s.tooManyTopics("clients are publishing to", topic)
	}
	if mine {
		if idle != nil {
			s.giveBack(idle)
		}
		if o.failed = s.open(ctx, o); o.failed != nil {
			s.drop(o)
		}
		close(o.opened)
	}
	<-o.opened
	if o.failed != nil {
		s.release(o)
		return nil, o.failed
	}
	return o, nil
}

// reserve takes a topic's outlet into use: that which is there, or one that is the caller's to open (mine) after it has given back another
// (idle, if it is not nil). nil: for a while now all are in use.
func (s *Server) reserve(topic string) (o *outlet, mine bool, idle *outlet) {
	s.outletMu.Lock()
	defer s.outletMu.Unlock()
	var patience *time.Timer
	for late := false; ; {
		if o = s.outlets[topic]; o != nil {
			o.users++
			return o, false, nil
		}
		idle, room := s.makeRoom()
		switch {
		case room:
			o = &outlet{topic: topic, opened: make(chan struct{}), users: 1}
			s.outlets[topic] = o
			return o, true, idle
		case late:
			return nil, false, nil
		case patience == nil:
			patience = time.AfterFunc(roomPatience, func() {
				s.outletMu.Lock()
				late = true
				s.outletMu.Unlock()
				s.outletFree.Broadcast()
			})
			defer patience.Stop()
		}
		s.outletFree.Wait()
	}
}

// roomPatience is how long a topic waits until another is not in use. Most are for some microseconds, one that is full for as long as it is.
const roomPatience = time.Second

// giveBack detaches from a topic that nobody publishes to now.
func (s *Server) giveBack(o *outlet) {
	s.givenBack.Add(1)
	s.cfg.Logger.Debug("a topic's publisher is given back", "topic", o.topic)
	if err := o.lane.Close(); err != nil {
		s.warnings.Warn("give_back", "a topic's publisher is not given back", slog.String("topic", o.topic), slog.Any("error", err))
	}
}

// tooManyTopics counts and tells a channel that is one topic too many.
func (s *Server) tooManyTopics(doing, channel string) error {
	err := fmt.Errorf("%s %d topics, and that is the limit: raise --max-topics, or use one topic for all channels (--resp-topic)", doing, s.cfg.MaxTopics)
	s.warnings.Warn("topics", "a channel is one topic too many", slog.Any("error", err), slog.String("channel", channel))
	s.denials.Add("topics")
	return err
}

// makeRoom takes the outlet out of the list that nobody has used for longest, if the list is full: the caller closes it. It is false if
// all are in use. The caller holds outletMu.
func (s *Server) makeRoom() (idle *outlet, ok bool) {
	if len(s.outlets) < s.cfg.MaxTopics {
		return nil, true
	}
	for _, o := range s.outlets {
		if o.users == 0 && (idle == nil || o.last < idle.last) {
			idle = o
		}
	}
	if idle == nil {
		return nil, false
	}
	delete(s.outlets, idle.topic)
	return idle, true
}

// release ends what acquire began.
func (s *Server) release(o *outlet) {
	s.outletMu.Lock()
	defer s.outletMu.Unlock()
	s.releases++
	o.users--
	o.last = s.releases
	if o.users == 0 {
		s.outletFree.Broadcast()
	}
}

// open attaches to the outlet's topic.
func (s *Server) open(ctx context.Context, o *outlet) (err error) {
	if o.lane, err = s.cfg.Bus.Lane(ctx, o.topic); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
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
		s.outletFree.Broadcast()
	}
}

// errLost says that an outlet's topic or attachment was lost: another can be opened.
var errLost = errors.New("the topic was lost meanwhile")

// publish publishes frames, and returns how many.
func (s *Server) publish(o *outlet, frames [][]byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return 0, errLost
	}
	done := 0
	for done < len(frames) {
		began := time.Now()
		n, err := o.lane.PublishBatch(s.hard, frames[done:])
		s.measure(n, time.Since(began))
		done += n
		if err == nil && n > 0 {
			continue
		}
		if s.hard.Err() != nil {
			return done, context.Cause(s.hard)
		}
		o.gone = true
		s.drop(o)
		if err != nil {
			err = fmt.Errorf("%w: %w", errLost, err)
		}
		return done, errors.Join(err, o.lane.Close())
	}
	return done, nil
}

// backpressure is how long a call may take before it counts as waiting for room.
const backpressure = time.Millisecond

// measure counts a call that published n frames.
func (s *Server) measure(n int, took time.Duration) {
	s.published.Add(uint64(n))
	s.batchFrames.Add(uint64(n))
	s.publishTimes.Time(took)
	if took > backpressure {
		s.backpressure.Add(int64(took))
	}
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
	outlet    *outlet // acquired; nil: nothing is pending
	frames    [][]byte
	receivers []int
}

// publishAll publishes what is pending, and returns how many frames. Where the topic was lost (removed and made anew, or a broker
// began anew) the rest goes to what there is by its name now, once.
func (s *Server) publishAll(p *pending) (int, error) {
	done, err := s.publish(p.outlet, p.frames)
	if !errors.Is(err, errLost) {
		return done, err
	}
	topic := p.outlet.topic
	s.release(p.outlet)
	if p.outlet, err = s.acquire(s.hard, topic); err != nil {
		return done, err
	}
	fit := done
	for fit < len(p.frames) && len(p.frames[fit]) <= p.outlet.max {
		fit++
	}
	n, err := s.publish(p.outlet, p.frames[done:fit])
	if err == nil && fit < len(p.frames) {
		err = tooLargeFor(p.outlet, p.frames[fit])
	}
	return done + n, err
}

func tooLargeFor(o *outlet, frame []byte) error {
	return fmt.Errorf("a message of %d bytes is above the limit of %d bytes: use a topic with more capacity", len(frame), o.max)
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
