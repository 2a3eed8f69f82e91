package ring

import (
	"errors"

	"pgregory.net/rapid"
)

// The readers' side of the machine.

// from is the first entry at or behind p.
func (m *machine) from(p Position) int {
	for i, e := range m.log {
		if !e.at.Before(p) {
			return i
		}
	}
	return len(m.log)
}

func (m *machine) Join(t *rapid.T) {
	i := rapid.IntRange(0, len(m.subscribers)-1).Draw(t, "subscriber")
	if m.subscribers[i] != nil {
		t.Skip("in use")
	}
	c := SubscriberConfig{Policy: rapid.SampledFrom([]Policy{Reliable, Lossy, Evict}).Draw(t, "policy")}
	if c.Policy == Evict {
		c.EvictLag = rapid.Uint64Range(1, 2*m.r.cfg.Capacity).Draw(t, "bound")
	}
	start, wanted := Latest(), m.tail
	switch rapid.IntRange(0, 2).Draw(t, "from") {
	case 1:
		start, wanted = Earliest(), m.r.Earliest()
	case 2:
		if len(m.log) > 0 {
			wanted = m.log[rapid.IntRange(0, len(m.log)-1).Draw(t, "entry")].at
			start = At(wanted)
		}
	}
	m.must(t, m.r.AdmitSubscriber(i, c))
	s, err := m.r.Subscriber(i, SubscriberOptions{})
	m.must(t, err)
	// What limits allow to be overwritten is not held; a publisher that died in its room
	// check is in the way of who wants to know.
	held := m.r.earliest(m.tail)
	stuck := false
	for p := range m.r.publishers {
		if slot := &m.r.publishers[p]; m.r.active.has(p) && c.Policy != Lossy {
			stuck = stuck || slot.counter.Read()%2 == 1
			if low := Position(slot.limit.Load() - m.r.cfg.Capacity); held.Before(low) {
				held = low
			}
		}
	}
	err = s.Join(start, never)
	if stuck && start != Latest() {
		if err == nil {
			t.Fatal("joined although a limit is being computed")
		}
		m.must(t, m.r.ReleaseSubscriber(i))
		return
	}
	m.must(t, err)
	for _, e := range m.log {
		if e.state == entryOpen && e.claim.Before(wanted) {
			continue // nobody can know that position: the padding in front of it is not committed
		}
		if !e.at.Before(wanted) && !e.claim.Before(held) && e.at.Before(s.Position()) && e.state != entryVoid {
			t.Fatalf("from %v (held from %d): joined at %d, behind %v", start, held, s.Position(), e)
		}
	}
	m.subscribers[i] = &modelSubscriber{s: s, next: m.from(s.Position()), lag: min(max(c.EvictLag, 0), m.r.cfg.Capacity)}
	if c.EvictLag != 0 {
		m.subscribers[i].lag = m.r.subscribers[i].evictLag.Load()
	}
	if start.kind == startAt && s.Position() != start.pos {
		_, err := s.Poll(1, nil)
		var gap *GapError
		if !errors.As(err, &gap) || *gap != (GapError{From: start.pos, To: s.Position()}) {
			t.Fatalf("joined at %d instead of %d, told: %v", s.Position(), start.pos, err)
		}
	}
}

func (m *machine) Leave(t *rapid.T) {
	i := rapid.IntRange(0, len(m.subscribers)-1).Draw(t, "subscriber")
	s := m.subscribers[i]
	if s == nil {
		t.Skip("no such one")
	}
	if rapid.Bool().Draw(t, "cleanly") {
		m.must(t, s.s.Close())
	}
	m.must(t, m.r.ReleaseSubscriber(i))
	m.subscribers[i] = nil
}

func (m *machine) Poll(t *rapid.T) {
	i := rapid.IntRange(0, len(m.subscribers)-1).Draw(t, "subscriber")
	s := m.subscribers[i]
	if s == nil {
		t.Skip("no such one")
	}
	limit := rapid.IntRange(0, 20).Draw(t, "limit")
	end := rapid.SampledFrom([]error{nil, nil, nil, ErrStop, errRefused}).Draw(t, "end")
	after := rapid.IntRange(0, 5).Draw(t, "after")
	poll := s.s.Poll
	if end == nil && rapid.Bool().Draw(t, "many") {
		poll = byBatch(s.s)
	}
	m.poll(t, s, poll, limit, after, end)
}

// poll is one Poll, whose handler returns end for frame number after.
func (m *machine) poll(t *rapid.T, s *modelSubscriber, poll pollFunc, limit, after int, end error) (frames int, err error) {
	gated := s.s.policy == Reliable
	evicted := m.r.subscribers[s.s.Index()].state.Load()&subState == subEvicted && s.s.gates
	calls, next, ended := 0, s.next, false
	n, err := poll(limit, func(f Frame) error {
		if ended {
			t.Fatal("called again after an error")
		}
		for next < len(m.log) && m.log[next].state == entryVoid {
			next++
		}
		if next == len(m.log) || m.log[next].state != entryData {
			t.Fatalf("a frame at %d that is not in the list", f.Position)
		}
		if e := m.log[next]; e.at != f.Position || e.payload != string(f.Payload) || e.source != int(f.Source) || f.Redelivered != 0 {
			t.Fatalf("%d bytes at %d from %d, want %v", len(f.Payload), f.Position, f.Source, e)
		}
		calls++
		if calls > after && end != nil {
			ended = true
			if end != ErrStop {
				return end
			}
		}
		next++
		if ended {
			return end
		}
		return nil
	})
	s.next = next
	var gap *GapError
	switch {
	case evicted && !s.s.behind:
		if err != ErrEvicted || n != 0 {
			t.Fatalf("an evicted subscriber was told %d, %v", n, err)
		}
	case errors.As(err, &gap):
		m.gap(t, s, gap)
	case ended && end == errRefused:
		if err != errRefused || n != calls-1 {
			t.Fatalf("%d, %v after %d calls", n, err, calls)
		}
	case err != nil || n != calls || n > limit && limit >= 0:
		t.Fatalf("%d, %v after %d calls of %d", n, err, calls, limit)
	case !ended && (gated && n < limit || n == 0 && limit > 0):
		for next < len(m.log) && m.log[next].state == entryVoid {
			next++
		}
		if next < len(m.log) && m.log[next].state == entryData {
			t.Fatalf("stopped before %v, at %d", m.log[next], s.s.Position())
		}
	}
	return n, err
}

// gap checks what a subscriber was told that it missed.
func (m *machine) gap(t *rapid.T, s *modelSubscriber, gap *GapError) {
	if s.s.policy == Reliable || m.tail.Sub(gap.From) <= int64(m.r.cfg.Capacity) || gap.To != s.s.Position() || m.tail.Before(gap.To) {
		t.Fatalf("%v, at tail %d", gap, m.tail)
	}
	for ; s.next < len(m.log) && m.log[s.next].at.Before(gap.To); s.next++ {
		if e := m.log[s.next]; e.state != entryVoid && e.at.Before(gap.From) {
			t.Fatalf("%v was passed over silently before %v", e, gap)
		}
	}
}

func (m *machine) member(t *rapid.T) (int, *modelMember) {
	i := rapid.IntRange(0, len(m.members)-1).Draw(t, "member")
	if m.members[i] == nil {
		id, err := m.r.AdmitMember(0, 5+i)
		m.must(t, err)
		mm, err := m.r.Member(0, id, SubscriberOptions{})
		m.must(t, err)
		m.members[i] = &modelMember{m: mm}
	}
	if m.members[i].dead {
		t.Skip("dead")
	}
	return i, m.members[i]
}

// take checks a frame that the group hands out.
func (m *machine) take(t *rapid.T, f Frame, finished bool) {
	at := m.from(f.Position)
	if at == len(m.log) || m.log[at].state != entryData || m.log[at].at != f.Position || m.log[at].payload != string(f.Payload) {
		t.Fatalf("the group hands out %d bytes at %d, which is not in the list", len(f.Payload), f.Position)
	}
	if m.finished[f.Position] {
		t.Fatalf("the frame at %d was finished before", f.Position)
	}
	if m.given[f.Position] > 0 && f.Redelivered == 0 {
		t.Fatalf("the frame at %d comes again, unmarked", f.Position)
	}
	m.given[f.Position]++
	m.finished[f.Position] = finished
}

func (m *machine) PollMember(t *rapid.T) {
	_, mm := m.member(t)
	limit := rapid.IntRange(0, 10).Draw(t, "limit")
	end := rapid.SampledFrom([]error{nil, nil, nil, ErrStop, errRefused}).Draw(t, "end")
	m.pollMember(t, mm.m, limit, rapid.IntRange(0, 4).Draw(t, "after"), end)
}

func (m *machine) pollMember(t *rapid.T, mm *Member, limit, after int, end error) int {
	head := m.r.groups[0].head.Load() &^ claimState
	offered := mm.offered()
	calls := 0
	var last error
	n, err := mm.Poll(limit, func(f Frame) error {
		if last != nil {
			t.Fatal("called again after an error")
		}
		if calls++; calls > after {
			last = end
		}
		m.take(t, f, last != errRefused)
		return last
	})
	wantN, wantErr := calls, error(nil)
	if last == errRefused {
		wantN, wantErr = calls-1, errRefused
	}
	if n != wantN || err != wantErr || n > max(limit, 0) {
		t.Fatalf("%d, %v after %d calls of %d", n, err, calls, limit)
	}
	if calls == 0 && limit > 0 && !offered && m.r.groups[0].head.Load()&^claimState == head {
		if i := m.from(Position(head)); i < len(m.log) && m.log[i].state == entryData {
			t.Fatalf("a member found nothing at %d, where %v is", head, m.log[i])
		}
	}
	return calls
}

// KillMember leaves a claim, an intent, or a range that it had adopted, or nothing.
func (m *machine) KillMember(t *rapid.T) {
	_, mm := m.member(t)
	switch rapid.IntRange(0, 4).Draw(t, "how") {
	case 0:
		m.must(t, mm.m.claim(rapid.IntRange(1, 5).Draw(t, "limit")))
	case 1:
		head := Position(m.r.groups[0].head.Load() &^ claimState)
		mm.m.help(m.r.groups[0].head.Load())
		if end, err := mm.m.find(uint64(head), 3); err == nil && end != uint64(head) {
			mm.m.stepIntent(head, Position(end))
			if rapid.Bool().Draw(t, "claims") {
				mm.m.stepHead(head, Position(end))
			}
		}
	case 2:
		mm.m.adopt()
	case 3: // in the handler of its second frame
		calls := 0
		func() {
			defer func() { _ = recover() }()
			_, _ = mm.m.Poll(4, func(f Frame) error {
				calls++
				m.take(t, f, calls == 1)
				if calls == 2 {
					panic("killed")
				}
				return nil
			})
		}()
	}
	mm.dead = true
}

func (m *machine) Reap(t *rapid.T) {
	i := rapid.IntRange(0, len(m.members)-1).Draw(t, "member")
	if mm := m.members[i]; mm != nil && mm.dead {
		m.reap(t, i)
	} else {
		t.Skip("not dead")
	}
}

func (m *machine) reap(t *rapid.T, i int) {
	done, err := m.r.ReapMember(0, m.members[i].m.ID())
	m.must(t, err)
	if done.Corrupt {
		t.Fatalf("%+v", done)
	}
	m.must(t, m.r.ReleaseSubscriber(5+i))
	m.members[i] = nil
}

func (m *machine) DeadLetters(t *rapid.T) {
	most := rapid.IntRange(1, 3).Draw(t, "most")
	_, err := m.r.DeadLetters(0, most, func(f Frame) error {
		if int(f.Redelivered) <= most {
			t.Fatalf("a dead letter that was redelivered %d times, of %d", f.Redelivered, most)
		}
		m.take(t, f, true)
		return nil
	})
	m.must(t, err)
}

// end stops everybody, and then everything that was committed must have come out.
func (m *machine) end(t *rapid.T) {
	for i, p := range m.publishers {
		if p == nil {
			continue
		}
		if !p.dead {
			m.must(t, m.r.CondemnPublisher(i))
		}
	}
	for i, p := range m.publishers {
		if p != nil {
			m.repair(t, i)
		}
	}
	for _, s := range m.subscribers {
		for s != nil {
			if n, err := m.poll(t, s, s.s.Poll, 10, 0, nil); n == 0 && err == nil {
				break
			}
		}
		for ; s != nil && s.next < len(m.log); s.next++ {
			if m.log[s.next].state == entryData {
				t.Fatalf("a subscriber at %d does not get %v", s.s.Position(), m.log[s.next])
			}
		}
	}
	for i, mm := range m.members {
		if mm != nil {
			m.reap(t, i)
		}
	}
	id, err := m.r.AdmitMember(0, 5)
	m.must(t, err)
	mm, err := m.r.Member(0, id, SubscriberOptions{})
	m.must(t, err)
	for mm.Ready() {
		m.pollMember(t, mm, 10, 0, nil)
	}
	for _, e := range m.log {
		if e.state == entryData && !m.finished[e.at] {
			t.Fatalf("the group never finished %v", e)
		}
	}
	if gs, _ := m.r.GroupState(0); gs.Orphans != 0 || gs.Lag != 0 {
		t.Fatalf("%+v", gs)
	}
}
