package resp

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/gateway/outbox"
	"github.com/hugebus/hugebus/ring"
)

// audience is who has subscribed to one channel or pattern.
type audience struct {
	members []*conn
	index   map[*conn]int
}

func (a *audience) add(c *conn) {
	a.index[c] = len(a.members)
	a.members = append(a.members, c)
}

func (a *audience) remove(c *conn) {
	i, last := a.index[c], len(a.members)-1
	a.members[i] = a.members[last]
	a.index[a.members[i]] = i
	a.members[last] = nil
	a.members = a.members[:last]
	delete(a.index, c)
}

// audiences are all of them, by name.
type audiences map[string]*audience

func (as audiences) add(name string, c *conn) {
	a := as[name]
	if a == nil {
		a = &audience{index: make(map[*conn]int)}
		as[name] = a
	}
	a.add(c)
}

func (as audiences) remove(name string, c *conn) {
	a := as[name]
	if a.remove(c); len(a.members) == 0 {
		delete(as, name)
	}
}

// pubsub is who has subscribed to what. Hubs read it for each batch; connections change it.
type pubsub struct {
	mu       sync.RWMutex
	channels audiences
	patterns audiences
}

// receivers is how many subscriptions a message of this channel meets.
func (p *pubsub) receivers(channel []byte) int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	n := 0
	if a := p.channels[string(channel)]; a != nil {
		n = len(a.members)
	}
	for pattern, a := range p.patterns {
		if glob(pattern, string(channel)) {
			n += len(a.members)
		}
	}
	return n
}

// wanted says whether somebody wants a channel, or, with "", anything at all.
func (p *pubsub) wanted(channel string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if channel == "" {
		return len(p.channels)+len(p.patterns) > 0
	}
	if p.channels[channel] != nil {
		return true
	}
	for pattern := range p.patterns {
		if glob(pattern, channel) {
			return true
		}
	}
	return false
}

func (p *pubsub) hasPatterns() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.patterns) > 0
}

// A hub reads one topic for all subscribers.
type hub struct {
	s      *Server
	topic  string
	src    Source
	cancel context.CancelFunc
	tape   *outbox.Tape
	dirty  []*conn // who is to be flushed after this batch

	// Arguments of encode.
	kind    int // protocol
	pattern string
	channel []byte
	payload []byte
	encode  func(dst []byte) ([]byte, error)
}

// openHub makes sure that a topic is read, from now on at the latest.
func (s *Server) openHub(topic string) error {
	s.hubMu.Lock()
	defer s.hubMu.Unlock()
	if s.hubs[topic] != nil {
		return nil
	}
	if len(s.hubs) >= maxTopics {
		return errTooManyTopics
	}
	src, err := s.cfg.Bus.Subscribe(s.ctx, topic)
	if err != nil {
		return err
	}
	h := &hub{s: s, topic: topic, src: src, tape: outbox.NewTape(&s.shared.Blocks)}
	h.encode = h.append
	ctx, cancel := context.WithCancel(s.ctx)
	h.cancel = cancel
	s.hubs[topic] = h
	s.working.Go(func() { h.run(ctx) })
	return nil
}

// closeHubs ends the hubs that nobody needs any more.
func (s *Server) closeHubs() {
	s.joinMu.Lock()
	defer s.joinMu.Unlock()
	s.hubMu.Lock()
	defer s.hubMu.Unlock()
	for topic, h := range s.hubs {
		name := topic
		if s.cfg.Topic != "" {
			name = ""
		}
		if !s.subs.wanted(name) {
			h.cancel()
			delete(s.hubs, topic)
		}
	}
}

// run reads until ctx ends, or reading fails.
func (h *hub) run(ctx context.Context) {
	defer h.cancel()
	err := h.read(ctx)
	h.tape.Close()
	err = errors.Join(err, h.src.Close())
	h.s.hubMu.Lock()
	if h.s.hubs[h.topic] == h {
		delete(h.s.hubs, h.topic)
	}
	h.s.hubMu.Unlock()
	if err == nil || ctx.Err() != nil {
		return
	}
	h.s.warnings.Warn("read_failed", "reading a topic failed", slog.String("topic", h.topic), slog.Any("error", err))
	h.s.recover(h.topic)
}

func (h *hub) read(ctx context.Context) error {
	take := h.take
	for ctx.Err() == nil {
		h.s.subs.mu.RLock()
		n, err := h.src.Poll(pollLimit, take)
		h.s.subs.mu.RUnlock()
		for i, c := range h.dirty {
			c.out.Flush()
			h.dirty[i] = nil
		}
		h.dirty = h.dirty[:0]
		h.s.shed()
		var gap *ring.GapError
		switch {
		case errors.As(err, &gap):
			h.s.missed.Add(gap.Bytes())
			h.s.warnings.Warn("missed", "the topic's publishers were faster than this gateway", slog.String("topic", h.topic), slog.Any("error", err))
		case errors.Is(err, ring.ErrEvicted):
		case err != nil:
			return err
		case n == 0:
			if err := h.src.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// take sends one frame to whom it concerns.
func (h *hub) take(f ring.Frame) error {
	channel, payload := []byte(h.topic), f.Payload
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
// the broker may have begun anew.
func (s *Server) recover(topic string) {
	name := topic
	if s.cfg.Topic != "" {
		name = ""
	}
	s.working.Go(func() {
		for wait := 50 * time.Millisecond; s.ctx.Err() == nil && s.subs.wanted(name); wait = min(2*wait, 5*time.Second) {
			err := s.openHub(topic)
			if err == nil {
				return
			}
			s.warnings.Warn("read_failed", "a topic cannot be read, trying again", slog.String("topic", topic), slog.Any("error", err))
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

// openMatching opens the topics that somebody wants.
func (s *Server) openMatching(patterns ...string) error {
	topics, err := s.cfg.Bus.Topics(s.ctx)
	if err != nil {
		return err
	}
	for _, t := range topics {
		if s.subs.wanted(t) || slices.ContainsFunc(patterns, func(p string) bool { return glob(p, t) }) {
			err = errors.Join(err, s.openHub(t))
		}
	}
	return err
}
