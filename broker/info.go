package broker

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

const (
	// pageBytes bounds the lists of one reply, and leaves room for what is around them.
	pageBytes = control.MaxMessage - 8<<10
	// rateTime is how long rates are watched for.
	rateTime = 200 * time.Millisecond
)

// summary describes a topic without what is attached to it. It is false if it is gone.
func (t *topic) summary() (control.TopicInfo, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return control.TopicInfo{}, false
	}
	return t.info(), true
}

// info is summary for who holds mu.
func (t *topic) info() control.TopicInfo {
	c := t.ring.Config()
	info := control.TopicInfo{
		Name: t.name, ID: t.id, Created: t.created, OwnerUID: t.owner,
		Capacity: int64(c.Capacity), Pages: t.data().Pages().String(), PageSize: t.data().PageSize(),
		CellSize: ring.CellSize, MaxPayload: int64(c.MaxPayload), Exclusive: c.Exclusive, Locked: t.options.Lock,
		MaxRedeliveries: t.options.MaxRedeliveries, Tail: uint64(t.ring.Tail()), Earliest: uint64(t.ring.Earliest()),
		PublisherSlots: len(t.publishers), SubscriberSlots: len(t.subscribers), GroupSlots: len(t.groups),
		PublisherCount: count(t.publishers), SubscriberCount: count(t.subscribers), GroupCount: count(t.groups),
		Repairs: t.counts.repairs, RepairedBytes: t.counts.repairedBytes,
		DeadLetters: t.counts.deadLetters, Violations: t.counts.violations,
		Expulsions: t.counts.expulsions, StuckClaims: len(t.stuck.held), RevokedClaims: t.counts.revoked,
	}
	for _, s := range t.segments {
		info.MemoryBytes += s.Size()
	}
	return info
}

// A sample is what rates are computed from.
type sample struct {
	at     time.Time
	tail   ring.Position
	frames map[uint64]uint64 // by attachment
	moved  map[uint64]ring.Position
}

// sample reads counters. It is false if the topic is gone.
func (t *topic) sample() (sample, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return sample{}, false
	}
	s := sample{at: time.Now(), tail: t.ring.Tail(), frames: map[uint64]uint64{}, moved: map[uint64]ring.Position{}}
	for _, a := range t.publishers {
		if a != nil {
			s.frames[a.id] = t.publisherInfo(a).Frames
		}
	}
	for _, a := range t.subscribers {
		if a == nil {
			continue
		}
		info := t.subscriberInfo(a)
		s.frames[a.id] = info.Frames
		if a.group == nil {
			s.moved[a.id] = ring.Position(info.Position)
		}
	}
	return s, true
}

// describe is the reply to show: the topic, and those of its attachments that come
// after after and fit one message. With rates it watches for a while first.
func (t *topic) describe(after string, rates bool) (outcome, error) {
	from, err := parsePlace(after)
	if err != nil {
		return outcome{}, err
	}
	var before sample
	if rates {
		var ok bool
		if before, ok = t.sample(); !ok {
			return outcome{}, notFound(t.name)
		}
		select {
		case <-time.After(rateTime):
		case <-t.broker.stopping:
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return outcome{}, notFound(t.name)
	}
	t.watchClaims(time.Now())
	t.audit()
	p := page{t: t, from: from, before: before, rates: rates, now: time.Now()}
	return p.reply()
}

// A place is where an attachment stands in the order of pages: publishers by slot, then
// subscribers by slot, then members by group and number.
type place [3]int

const (
	amongPublishers = iota
	amongSubscribers
	amongMembers
)

func (p place) String() string { return fmt.Sprintf("%d.%d.%d", p[0], p[1], p[2]) }

func parsePlace(s string) (place, error) {
	p := place{-1, -1, -1}
	if s == "" {
		return p, nil
	}
	if n, err := fmt.Sscanf(s, "%d.%d.%d", &p[0], &p[1], &p[2]); err != nil || n != 3 || p.String() != s {
		return p, control.Errorf(control.CodeInvalid, "after %.32q is not the next of an earlier reply", s)
	}
	return p, nil
}

// A page collects attachments until the message is full.
type page struct {
	t      *topic
	from   place
	before sample
	rates  bool
	now    time.Time

	info control.TopicInfo
	size int
	last place
	next string
}

func (p *page) reply() (outcome, error) {
	t := p.t
	p.info = t.info()
	p.info.Publishers, p.info.Subscribers, p.info.Groups = []control.AttachmentInfo{}, []control.AttachmentInfo{}, []control.GroupInfo{}
	if p.rates {
		seconds := p.now.Sub(p.before.at).Seconds()
		p.info.BytesPerSecond = float64(t.ring.Tail().Sub(p.before.tail)) / seconds
	}
	for slot, a := range t.publishers {
		if a == nil {
			continue
		}
		info := t.publisherInfo(a)
		p.rate(a, &info)
		p.info.FramesPerSecond += info.FramesPerSecond
		if ok, err := p.take(place{amongPublishers, slot}, info); err != nil {
			return outcome{}, err
		} else if ok {
			p.info.Publishers = append(p.info.Publishers, info)
		}
	}
	for slot, a := range t.subscribers {
		if a == nil || a.group != nil {
			continue
		}
		info := t.subscriberInfo(a)
		p.rate(a, &info)
		if ok, err := p.take(place{amongSubscribers, slot}, info); err != nil {
			return outcome{}, err
		} else if ok {
			p.info.Subscribers = append(p.info.Subscribers, info)
		}
	}
	for _, g := range t.groups {
		if err := p.group(g); err != nil {
			return outcome{}, err
		}
	}
	return outcome{body: control.TopicReply{Topic: p.info, Next: p.next}}, nil
}

// group adds a group with those of its members that fit. A group without members
// stands at number -1.
func (p *page) group(g *group) error {
	if g == nil || g.opening != nil {
		return nil
	}
	info, holds := p.t.groupInfo(g)
	shown, err := p.take(place{amongMembers, g.index, -1}, info)
	if err != nil {
		return err
	}
	numbers := make([]int, 0, len(g.members))
	for n := range g.members {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		member := p.t.subscriberInfo(g.members[n])
		member.Position, member.LagBytes = info.Position, 0
		if from, ok := holds[n]; ok {
			member.Position, member.LagBytes = uint64(from), max(p.t.ring.Tail().Sub(from), 0)
		}
		p.rate(g.members[n], &member)
		ok, err := p.take(place{amongMembers, g.index, n}, member)
		if err != nil {
			return err
		}
		if ok {
			info.Members = append(info.Members, member)
			shown = true
		}
	}
	if shown {
		p.info.Groups = append(p.info.Groups, info)
	}
	return nil
}

// take reports whether what stands at a place belongs to this page.
func (p *page) take(at place, info any) (bool, error) {
	if p.next != "" || slices.Compare(at[:], p.from[:]) <= 0 {
		return false, nil
	}
	text, err := json.Marshal(info)
	if err != nil {
		return false, err
	}
	if p.size += len(text) + 1; p.size > pageBytes {
		p.next = p.last.String()
		return false, nil
	}
	p.last = at
	return true, nil
}

// rate fills in an attachment's rates.
func (p *page) rate(a *attachment, info *control.AttachmentInfo) {
	frames, known := p.before.frames[a.id]
	if !p.rates || !known {
		return
	}
	seconds := p.now.Sub(p.before.at).Seconds()
	info.FramesPerSecond = float64(info.Frames-frames) / seconds
	if moved, ok := p.before.moved[a.id]; ok {
		info.BytesPerSecond = float64(max(ring.Position(info.Position).Sub(moved), 0)) / seconds
	}
}

// infoOf is what the broker itself knows about an attachment.
func infoOf(a *attachment) control.AttachmentInfo {
	info := control.AttachmentInfo{
		Attachment: a.id, Slot: a.slot, Name: a.name, UID: a.who.UID, PID: a.who.PID, Command: a.who.Command, Attached: a.since,
	}
	if note := a.note.Load(); note != nil {
		info.Note = *note
	}
	return info
}

func (t *topic) publisherInfo(a *attachment) control.AttachmentInfo {
	info := infoOf(a)
	if s, err := t.ring.PublisherState(a.slot); err == nil {
		info.Frames = s.Frames
		if s.Claimed {
			info.Position, info.ClaimedBytes = uint64(s.Claim), int64(min(s.Bytes, uint64(t.options.Capacity)))
			if c := t.stuck.held[a]; c != nil && c.Position == s.Claim {
				info.StuckFor, info.Stage = c.For, c.Stage.String()
			}
		}
	}
	return info
}

func (t *topic) subscriberInfo(a *attachment) control.AttachmentInfo {
	info := infoOf(a)
	s, err := t.ring.SubscriberState(a.slot)
	if err != nil {
		return info
	}
	info.Position, info.LagBytes, info.Frames = uint64(s.Position), int64(s.Lag), s.Frames
	info.Gaps, info.GapBytes, info.Evicted, info.Expelled = s.Gaps, s.GapBytes, s.Evicted, a.expelled
	if a.group == nil {
		info.Policy, info.Joining = s.Policy.String(), !s.Joined
	}
	return info
}

// groupInfo describes a group without its members, and says what those hold.
func (t *topic) groupInfo(g *group) (info control.GroupInfo, holds map[int]ring.Position) {
	info = control.GroupInfo{Name: g.name, Slot: g.index, Closes: g.closes, Members: []control.AttachmentInfo{}}
	s, err := t.ring.GroupState(g.index)
	if err != nil {
		return info, nil
	}
	info.Position, info.LagBytes, info.Redelivered = uint64(s.Head), int64(s.Lag), s.Redelivered
	info.UnfinishedRanges = s.Orphans
	holds = map[int]ring.Position{}
	for _, m := range s.Members {
		if m.Holding {
			holds[m.Member] = m.From
		}
	}
	return info, holds
}
