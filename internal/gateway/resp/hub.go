package resp

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/gateway/outbox"
	"github.com/hugebus/hugebus/ring"
)

var errStopping = errors.New("the gateway is stopping")

// A hub reads one topic for all subscribers.
type hub struct {
	s      *Server
	topic  string
	name   []byte // the topic
	ctx    context.Context
	cancel context.CancelFunc
	opened chan struct{} // closed when src or failed is set
	src    Source
	failed error
	tape   *outbox.Tape
	dirty  []*conn // who is to be flushed after this batch

	// Arguments of encode.
	kind    int // protocol
	pattern string
	channel []byte
	payload []byte
	encode  func(dst []byte) ([]byte, error)
}

// openHub makes sure that a topic is read, from now on at the latest, as long as somebody wants it. Who only needs other topics does not wait for it.
func (s *Server) openHub(topic string) error {
	s.hubMu.Lock()
	h := s.hubs[topic]
	switch {
	case h != nil:
		s.hubMu.Unlock()
		<-h.opened
		return h.failed
	case s.noHubs:
		s.hubMu.Unlock()
		return errStopping
	case len(s.hubs) >= s.cfg.MaxTopics:
		s.hubMu.Unlock()
		return s.tooManyTopics("clients have subscribed to", topic)
	}
	h = &hub{s: s, topic: topic, name: []byte(topic), opened: make(chan struct{}), tape: outbox.NewTape(&s.shared.Blocks)}
	h.encode = h.append
	h.ctx, h.cancel = context.WithCancel(s.ctx)
	s.hubs[topic] = h
	s.working.Add(1) // under hubMu: nobody waits yet, or noHubs was set
	s.hubMu.Unlock()
	h.src, h.failed = s.cfg.Bus.Subscribe(h.ctx, topic)
	close(h.opened)
	if h.failed != nil {
		s.forget(h)
		s.working.Done()
		return h.failed
	}
	go func() {
		defer s.working.Done()
		h.run()
	}()
	if !s.subs.wanted(s.channelOf(topic)) { // who did may have gone meanwhile
		s.closeHubs()
	}
	return nil
}

// channelOf is what pubsub.wanted calls a topic.
func (s *Server) channelOf(topic string) string {
	if s.cfg.Topic != "" {
		return ""
	}
	return topic
}

// forget takes a hub out of the list.
func (s *Server) forget(h *hub) {
	h.cancel()
	s.hubMu.Lock()
	defer s.hubMu.Unlock()
	if s.hubs[h.topic] == h {
		delete(s.hubs, h.topic)
	}
}

// closeHubs ends the hubs that nobody needs any more.
func (s *Server) closeHubs() {
	s.hubMu.Lock()
	defer s.hubMu.Unlock()
	for topic, h := range s.hubs {
		if !s.subs.wanted(s.channelOf(topic)) {
			h.cancel()
			delete(s.hubs, topic)
		}
	}
}

// stopHubs lets all hubs end, and none begin.
func (s *Server) stopHubs() {
	s.hubMu.Lock()
	s.noHubs = true
	s.hubMu.Unlock()
	s.working.Wait()
}

// run reads until the hub is closed, or reading fails.
func (h *hub) run() {
	err := h.read()
	h.tape.Close()
	err = errors.Join(err, h.src.Close())
	closed := h.ctx.Err() != nil
	h.s.forget(h)
	if err == nil || closed {
		return
	}
	h.s.warnings.Warn("read_failed", "reading a topic failed", slog.String("topic", h.topic), slog.Any("error", err))
	h.s.recover(h.topic)
}

func (h *hub) read() error {
	take := h.take
	for {
		n, over, err := h.poll(take)
		for i, c := range h.dirty {
			c.out.Flush()
			h.dirty[i] = nil
		}
		h.dirty = h.dirty[:0]
		h.s.shed()
		var gap *ring.GapError
		switch {
		case over:
			return nil
		case errors.As(err, &gap):
			h.s.missed.Add(gap.Bytes())
			h.s.warnings.Warn("missed", "the topic's publishers were faster than this gateway", slog.String("topic", h.topic), slog.Any("error", err))
		case errors.Is(err, ring.ErrEvicted):
		case err != nil:
			return err
		case n == 0:
			if err := h.src.Wait(h.ctx); err != nil {
				return err
			}
		}
	}
}

// poll dispatches a batch while nobody joins or leaves. It looks whether the hub was closed only then: who subscribes after that comes in after the
// batch, and gets the frames from another hub.
func (h *hub) poll(take func(ring.Frame) error) (n int, over bool, err error) {
	h.s.subs.mu.RLock()
	defer h.s.subs.mu.RUnlock()
	if h.ctx.Err() != nil {
		return 0, true, nil
	}
	n, err = h.src.Poll(pollLimit, take)
	return n, false, err
}

// take sends one frame to whom it concerns.
func (h *hub) take(f ring.Frame) error {
	channel, payload := h.name, f.Payload
	if h.s.cfg.Topic != "" {
		var ok bool
		if channel, payload, ok = splitFrame(f.Payload); !ok {
			h.s.malformed.Add(1)
			h.s.warnings.Warn("malformed_frame", "a frame does not begin with a channel: only the gateway, or who writes frames as it does, should publish to this topic",
				slog.String("topic", h.topic), slog.Uint64("position", uint64(f.Position)), slog.Int("bytes", len(f.Payload)))
			return nil
		}
	}
	h.s.read.Add(1)
	h.payload = payload
	if a := h.s.subs.channels[string(channel)]; a != nil {
		h.pattern, h.channel = "", channel
		h.sendTo(a)
	}
	for pattern, a := range h.s.subs.patterns {
		if glob(pattern, string(channel)) {
			h.pattern, h.channel = pattern, channel
			h.sendTo(a)
		}
	}
	return nil
}

// sendTo encodes the message once for each protocol that the audience speaks, and queues it for all.
func (h *hub) sendTo(a *audience) {
	var segs [4]outbox.Segment
	var made [4]bool
	for _, c := range a.members {
		proto := int(c.proto.Load())
		if !made[proto] {
			h.kind = proto
			s, err := h.tape.Append(len(h.payload)+len(h.channel)+len(h.pattern)+overhead, h.encode)
			if err != nil {
				panic(err) // encode returns none
			}
			segs[proto], made[proto] = s, true
		}
		if c.out.Queue(segs[proto]) {
			h.dirty = append(h.dirty, c)
		}
	}
	h.s.delivered.Add(uint64(len(a.members)))
	for i, ok := range made {
		if ok {
			segs[i].Drop()
		}
	}
}

func (h *hub) append(dst []byte) ([]byte, error) {
	if h.pattern != "" {
		return patternMessage(dst, h.kind, h.pattern, h.channel, h.payload), nil
	}
	return message(dst, h.kind, h.channel, h.payload), nil
}

// splitFrame takes a frame of a shared topic apart.
func splitFrame(b []byte) (channel, payload []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n {
		return nil, nil, false
	}
	return b[2 : 2+n], b[2+n:], true
}

// recover opens a topic again that could not be read any more, if somebody still wants it: it may have been removed and made anew, or
// the broker may have begun anew. It is called by a hub, which working counts.
func (s *Server) recover(topic string) {
	s.working.Go(func() {
		for wait := 50 * time.Millisecond; s.ctx.Err() == nil && s.subs.wanted(s.channelOf(topic)); wait = min(2*wait, 5*time.Second) {
			err := s.openHub(topic)
			if err == nil {
				s.cfg.Logger.Info("a topic is read again, from its newest frame on", "topic", topic)
				return
			}
			if s.ctx.Err() == nil {
				s.warnings.Warn("read_failed", "a topic cannot be read, trying again", slog.String("topic", topic), slog.Any("error", err))
			}
			door.Pause(s.ctx.Done(), wait)
		}
	})
}

// watchTopics finds topics that others make, for the patterns of those who wait for them.
func (s *Server) watchTopics() {
	for door.Pause(s.ctx.Done(), time.Second); s.ctx.Err() == nil; door.Pause(s.ctx.Done(), time.Second) {
		if s.subs.hasPatterns() {
			if err := s.openMatching(); err != nil && s.ctx.Err() == nil {
				s.warnings.Warn("topics_unknown", "the broker does not list topics: patterns miss new ones", slog.Any("error", err))
			}
		}
	}
}

// openMatching opens the topics that somebody wants. One that cannot be read, such as another user's, is no reason not to read the others.
func (s *Server) openMatching() error {
	topics, err := s.cfg.Bus.Topics(s.ctx)
	if err != nil {
		return err
	}
	for _, t := range topics {
		if !s.subs.wanted(t) {
			continue
		}
		s.openWanted(t)
	}
	return nil
}

// openWanted opens a topic that matches a pattern.
func (s *Server) openWanted(topic string) {
	if err := s.openHub(topic); err != nil && s.ctx.Err() == nil {
		s.warnings.Warn("topic_unreadable", "a topic that matches a pattern cannot be read", slog.String("topic", topic), slog.Any("error", err))
	}
}
