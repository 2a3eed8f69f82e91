package broker

import (
	"strconv"
	"time"

	"github.com/hugebus/hugebus/ring"
)

// collect adds a topic's figures, and its memory to that of its kinds of pages.
func (t *topic) collect(m *metrics, pages map[string]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	for _, s := range t.segments {
		pages[s.Pages().String()] += s.Size()
	}
	t.watchClaims(time.Now())
	frames, missed, redelivered := t.counts.frames, t.counts.missed, t.counts.redelivered
	frames += t.collectPublishers(m)
	missed += t.collectSubscribers(m)
	redelivered += t.collectGroups(m)
	m.counter(descPublished, uint64(t.ring.Tail()-t.ring.Config().Start), t.name)
	m.counter(descFrames, frames, t.name)
	m.counter(descMissed, missed, t.name)
	m.counter(descRedeliver, redelivered, t.name)
	m.counter(descRepairs, t.counts.repairs, t.name)
	m.counter(descRepaired, t.counts.repairedBytes, t.name)
	m.counter(descLetters, t.counts.deadLetters, t.name)
	m.counter(descEvictions, t.counts.evictions, t.name)
	m.counter(descExpulsion, t.counts.expulsions, t.name)
	m.counter(descViolation, t.counts.violations, t.name)
	m.gauge(descStuck, float64(len(t.stuck.held)), t.name)
	m.counter(descStuckTotal, t.counts.stuck, t.name)
	m.counter(descRevoked, t.counts.revoked, t.name)
	m.gauge(descPending, float64(len(t.pending)), t.name)
}

// labels are those that tell attachments apart.
func (a *attachment) labels(more ...string) []string {
	return append([]string{a.topic.name, strconv.Itoa(a.slot), a.name, strconv.Itoa(int(a.who.PID))}, more...)
}

func (t *topic) collectPublishers(m *metrics) (frames uint64) {
	for _, a := range t.publishers {
		if a == nil {
			continue
		}
		if s, err := t.ring.PublisherState(a.slot); err == nil {
			m.counter(descPublisher, s.Frames, a.labels()...)
			if c := t.stuck.held[a]; c != nil {
				m.gauge(descStuckFor, c.For.Seconds(), a.labels()...)
			}
			frames += s.Frames
		}
	}
	m.gauge(descAttachments, float64(count(t.publishers)), t.name, "publisher")
	return frames
}

func (t *topic) collectSubscribers(m *metrics) (missed uint64) {
	members := 0
	for _, a := range t.subscribers {
		if a == nil {
			continue
		}
		s, err := t.ring.SubscriberState(a.slot)
		if err != nil {
			continue
		}
		missed += s.Missed
		if a.group != nil {
			members++
			m.counter(descSubFrames, s.Frames, a.labels(string(a.kind), a.group.name)...)
			continue
		}
		m.counter(descSubFrames, s.Frames, a.labels(string(a.kind), "")...)
		m.gauge(descLag, float64(s.Lag), a.labels(s.Policy.String())...)
		if s.Policy != ring.Reliable {
			m.counter(descGaps, s.GapBytes, a.labels(s.Policy.String())...)
		}
	}
	m.gauge(descAttachments, float64(count(t.subscribers)-members), t.name, "subscriber")
	m.gauge(descAttachments, float64(members), t.name, "member")
	return missed
}

func (t *topic) collectGroups(m *metrics) (redelivered uint64) {
	for _, g := range t.groups {
		if g == nil || g.opening != nil {
			continue
		}
		if s, err := t.ring.GroupState(g.index); err == nil {
			m.gauge(descGroupLag, float64(s.Lag), t.name, g.name)
			redelivered += s.Redelivered
		}
	}
	m.gauge(descGroups, float64(count(t.groups)), t.name)
	return redelivered
}
