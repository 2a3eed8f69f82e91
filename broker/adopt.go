package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/doorbell"
	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/keeper"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// Failpoints of what outlives the broker; docs/keeper.md says what the next one finds.
const (
	FailCreateMade     = "broker/create/made"
	FailCreateRecorded = "broker/create/recorded"
	FailRemoveRecorded = "broker/remove/recorded"
	FailRemoveClosed   = "broker/remove/closed"
	FailAttachAdmitted = "broker/attach/admitted"
	FailAttachRecorded = "broker/attach/recorded"
	FailGroupOpened    = "broker/group/opened"
	FailGroupClosed    = "broker/group/closed"
	FailDepartFreed    = "broker/depart/freed"
	FailAdoptLoaded    = "broker/adopt/loaded"
	FailAdoptTopic     = "broker/adopt/topic"
	FailAdoptClients   = "broker/adopt/clients"
	FailAdoptSwept     = "broker/adopt/swept"
	FailReattach       = "broker/reattach/taken"
)

// DefaultAdoptGrace is used where Config.AdoptGrace is 0.
const DefaultAdoptGrace = 5 * time.Second

// begin takes the socket and the store, and adopts what an earlier broker has left there.
func (b *Broker) begin() (err error) {
	inherited := &keeper.Inherited{}
	if b.config.Keeper.Mode == KeepBySystem {
		inherited = keeper.Inherit()
	}
	defer inherited.Close()
	activated, err := inherited.Listener()
	if err != nil {
		return err
	}
	if activated != nil {
		b.config.Socket = activated.Addr().String()
	}
	if b.socket, err = takeSocket(b.config.Socket); err != nil {
		if activated != nil {
			_ = activated.Close() // another broker has the lock
		}
		return err
	}
	b.socket.listener, b.socket.activated = activated, activated != nil
	if activated != nil {
		if err := control.TakeListener(activated); err != nil {
			return fmt.Errorf("take over the socket from systemd: %w", err)
		}
	}
	var entries []keeper.Entry
	if entries, err = b.loadStore(inherited); err != nil {
		return err
	}
	defer func() { closeEntries(entries) }()
	if len(entries) == 0 {
		defer func() {
			if err != nil {
				b.forget.Store(true) // a keeper that was started for nothing is not left behind
			}
		}()
	}
	failpoint.Hit(FailAdoptLoaded)
	if err := b.socket.open(entries, b.config.SocketMode, &b.vault); err != nil {
		return err
	}
	return b.adopt(entries)
}

func (b *Broker) loadStore(inherited *keeper.Inherited) ([]keeper.Entry, error) {
	store, err := b.openStore(inherited)
	if err != nil || store == nil {
		return nil, err
	}
	b.vault.store = store
	b.background.Go(b.guardStore)
	ctx, cancel := context.WithTimeout(context.Background(), storePatience)
	defer cancel()
	return store.Load(ctx)
}

func closeEntries(entries []keeper.Entry) {
	for _, e := range entries {
		e.Close() // files that were taken over are nil by now
	}
}

// adopt takes over the topics and clients of an earlier broker. Then it repairs what nobody
// is recorded to hold: that is what its death left half done.
func (b *Broker) adopt(entries []keeper.Entry) error {
	topics, err := b.adoptTopics(entries)
	if err != nil {
		return err
	}
	holders := b.adoptClients(entries, topics)
	failpoint.Hit(FailAdoptClients)
	b.eachOf(topics, (*topic).sweep)
	failpoint.Hit(FailAdoptSwept)
	for _, h := range holders {
		h.mu.Lock()
		leaving := make([]*attachment, 0, len(h.leaving))
		for _, a := range h.leaving {
			leaving = append(leaving, a)
		}
		h.letGo(leaving, false)
		holds := len(h.held) > 0
		h.mu.Unlock()
		if holds {
			b.background.Go(func() { h.awaitReturn(b.config.AdoptGrace) })
		} else {
			h.end(nil)
		}
	}
	b.eachOf(topics, (*topic).settleIn)
	if len(entries) > 0 {
		b.log.Info("an earlier broker's topics are adopted", "topics", len(topics), "clients", len(holders), "grace", b.config.AdoptGrace)
	}
	return nil
}

// adoptTopics adopts every topic. Each costs some 0.5 ms, most of it in the kernel, and none
// depends on another: a thousand are shared out to all processors.
func (b *Broker) adoptTopics(entries []keeper.Entry) (map[string]*topic, error) {
	var mu sync.Mutex // guards topics and errs
	topics, errs := map[string]*topic{}, []error{}
	shareOut(len(entries), func(i int) {
		e := &entries[i]
		if kindOf(e.Key)+"/" != topicKeyPrefix {
			return
		}
		t, err := b.adoptEntry(e)
		mu.Lock()
		if t != nil {
			topics[t.id] = t
		}
		errs = append(errs, err)
		mu.Unlock()
		failpoint.Hit(FailAdoptTopic)
	})
	return topics, errors.Join(errs...)
}

// eachOf calls fn for every topic, several at a time.
func (b *Broker) eachOf(topics map[string]*topic, fn func(*topic)) {
	list := slices.Collect(maps.Values(topics))
	shareOut(len(list), func(i int) { fn(list[i]) })
}

// shareOut calls fn for every number below n, on as many goroutines as there are processors.
func shareOut(n int, fn func(int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				fn(i)
			}
		})
	}
	all.Wait()
}

// adoptEntry adopts one topic. One that is damaged is given up, so that the others are
// served; one of another release is not: that release can still serve it.
func (b *Broker) adoptEntry(e *keeper.Entry) (*topic, error) {
	t, err := b.adoptTopic(e)
	if err == nil && !b.topics.adopt(t) {
		t.release()
		err = fmt.Errorf("there is another topic %q", t.name)
	}
	switch {
	case errors.Is(err, ring.ErrVersion):
		return nil, fmt.Errorf("adopt %s: %w: start a broker of the release that made it, or give everything up with `hugebus shutdown`", e.Key, err)
	case err != nil:
		b.log.Error("a topic of an earlier broker cannot be adopted, and is given up", "entry", e.Key, "error", err)
		b.vault.drop(e.Key)
		return nil, nil
	}
	b.ledger.holdTopic(t.owner, t.booked)
	return t, nil
}

// adoptTopic makes a topic of its entry, whose files it takes over.
func (b *Broker) adoptTopic(e *keeper.Entry) (_ *topic, err error) {
	files := e.Files
	e.Files = nil
	defer func() { closeFiles(files) }()
	var r topicRecord
	if err := decodeRecord(e.Key, e.Data, &r); err != nil {
		return nil, err
	}
	if len(files) != control.MaxDescriptors || e.Key != topicKeyPrefix+r.ID {
		return nil, fmt.Errorf("%d descriptors for topic %q with id %.32q", len(files), r.Name, r.ID)
	}
	if err := errors.Join(control.CheckTopicName(r.Name), checkOptions(r.Options)); err != nil {
		return nil, err
	}
	t := blankTopic(b, r.Name, r.Options, r.Owner, r.Booked)
	t.id, t.created, t.removed = r.ID, r.Created, r.Removed
	defer func() {
		if err != nil {
			t.release()
		}
	}()
	for i := range t.segments {
		f := files[i]
		files[i] = nil
		if t.segments[i], err = shm.Open(f, true); err != nil {
			return nil, err
		}
		if r.Options.Lock {
			if err := sys.Lock(t.segments[i].Bytes()); err != nil {
				t.log.Warn("memory of an adopted topic can be swapped out", "error", err)
			}
		}
	}
	return t, t.join(files, r)
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing was written to it
		}
	}
}

// join attaches to the ring and the doorbells of an adopted topic, and takes in its groups.
func (t *topic) join(files []*os.File, r topicRecord) (err error) {
	var restored bool
	if t.ring, restored, err = ring.Adopt(ring.Memory{
		Ctl:     t.segments[control.FileCtl].Bytes(),
		Cursors: t.segments[control.FileCursors].Bytes(),
		Data:    t.data().Bytes(),
	}); err != nil {
		return err
	}
	if restored {
		t.violated("header of shared memory was written over: it is restored")
	}
	c := t.ring.Config()
	if fmt.Sprintf("%x", c.TopicID) != r.ID || c.Publishers != len(t.publishers) || c.Subscribers != len(t.subscribers) || c.Groups != len(t.groups) {
		return fmt.Errorf("the memory is that of another topic (%x)", c.TopicID)
	}
	for i, bell := range map[int]**doorbell.Bell{control.FileSubscriberBell: &t.subBell, control.FilePublisherBell: &t.pubBell} {
		f := files[i]
		files[i] = nil
		if *bell, err = doorbell.FromFile(f); err != nil {
			return err
		}
	}
	if s, err := t.ring.State(); err == nil {
		t.counts.repairs, t.counts.repairedBytes = s.Repairs, s.SkippedBytes
	}
	for _, g := range r.Groups {
		if state, err := t.ring.GroupState(g.Index); err == nil && state.Open {
			// A member may have died: the group is kept for a while in every case.
			t.groups[g.Index] = &group{name: g.Name, index: g.Index, members: map[int]*attachment{}}
		}
	}
	return nil
}

// adoptClients makes holders of what is recorded. Of two records that name one slot the
// later one has it: the other's client had left, and was not yet forgotten.
func (b *Broker) adoptClients(entries []keeper.Entry, topics map[string]*topic) []*holder {
	type claim struct {
		h *holder
		r attachmentRecord
	}
	var holders []*holder
	var claims []claim
	for i := range entries {
		e := &entries[i]
		if kindOf(e.Key)+"/" != clientKeyPrefix {
			continue
		}
		var r clientRecord
		if err := decodeRecord(e.Key, e.Data, &r); err != nil || r.Secret == "" {
			b.log.Error("a client of an earlier broker cannot be adopted: what it holds is taken for that of a dead one", "entry", e.Key, "error", err)
			b.vault.drop(e.Key)
			continue
		}
		h := &holder{
			broker: b, secret: r.Secret, key: e.Key, who: r.identity(), name: r.Name, kept: true,
			held: map[uint64]*attachment{}, leaving: map[uint64]*attachment{},
		}
		if len(e.Files) > 0 {
			h.process, e.Files[0] = e.Files[0], nil
		}
		b.addHolder(h)
		holders = append(holders, h)
		for _, a := range r.Attachments {
			claims = append(claims, claim{h, a})
		}
	}
	slices.SortFunc(claims, func(x, y claim) int { return cmp.Compare(y.r.ID, x.r.ID) })
	for _, c := range claims {
		b.lastAttachment.Store(max(b.lastAttachment.Load(), c.r.ID))
		t := topics[c.r.TopicID]
		if t == nil || !t.resume(c.h, c.r) {
			b.log.Debug("an attachment was given back before the earlier broker died", "client", c.h.name, "kind", c.r.Kind, "slot", c.r.Slot)
		}
	}
	return holders
}

// resume puts an attachment of an earlier broker into its slot, unless that is free in the
// memory, or taken.
func (t *topic) resume(h *holder, r attachmentRecord) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &attachment{
		id: r.ID, topic: t, holder: h, who: h.who, kind: r.Kind, name: r.Name, slot: r.Slot, since: r.Since, evictAfter: r.EvictAfter, policy: r.Policy,
		away: true,
	}
	slots := t.subscribers
	if a.kind == control.KindPublisher {
		slots = t.publishers
	}
	if r.Slot < 0 || r.Slot >= len(slots) || slots[r.Slot] != nil {
		return false
	}
	switch a.kind {
	case control.KindPublisher:
		if s, err := t.ring.PublisherState(r.Slot); err != nil || !s.Active {
			return false // condemned, or free: sweep finds out
		}
	case control.KindMember:
		if !t.resumeMember(a, r) {
			return false
		}
	default:
		s, err := t.ring.SubscriberState(r.Slot)
		if err != nil || !s.Taken {
			return false // the earlier broker had freed it, and did not live to forget it
		}
		if a.policy == 0 {
			a.policy = s.Policy // recorded by a release that did not say
		}
	}
	slots[r.Slot] = a
	if r.Leaving {
		h.leaving[a.id] = a
	} else {
		h.held[a.id] = a
	}
	t.users++
	return true
}

func (t *topic) resumeMember(a *attachment, r attachmentRecord) bool {
	if r.Group < 0 || r.Group >= len(t.groups) || t.groups[r.Group] == nil {
		return false
	}
	g := t.groups[r.Group]
	state, err := t.ring.GroupState(r.Group)
	admitted := slices.ContainsFunc(state.Members, func(m ring.MemberState) bool { return m.Member == r.Member && m.Slot == r.Slot })
	if err != nil || !admitted || g.members[r.Member] != nil {
		return false
	}
	a.group, a.member = g, r.Member
	g.members[r.Member] = a
	return true
}

// settleIn tells everybody which broker serves the topic now, and goes on with what the
// earlier one was doing.
func (t *topic) settleIn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.audit()
	for _, a := range t.subscribers {
		if a != nil && a.evictAfter > 0 {
			t.watchStalls()
			break
		}
	}
	for _, g := range t.groups {
		if g != nil {
			t.afterLeaving(g)
		}
	}
	t.publishState()
	t.wake()
	t.closeIfUnused()
}
