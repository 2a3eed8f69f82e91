package ring

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// A whole ring against a list: publishers, subscribers of every policy and a group do what
// they can in any order, die and are repaired after. The list says what must come out.

const (
	entryOpen = iota // claimed, not committed
	entryData
	entryVoid // aborted, or filled by repair
)

// entry is a frame of the list, in the order of positions.
type entry struct {
	at, claim Position // where it begins, and its claim
	payload   string
	source    int
	state     int
}

type modelPublisher struct {
	p     *Publisher
	claim Claim
	entry int  // of the open claim, or -1
	dead  bool // not repaired yet
}

type modelSubscriber struct {
	s     *Subscriber
	next  int    // entry that comes next
	lag   uint64 // bound on it, or 0
	exact bool   // no limit from before it joined reaches beyond the bound
}

type modelMember struct {
	m    *Member
	dead bool
}

type machine struct {
	r    *Ring
	tail Position
	log  []entry
	ids  uint64

	publishers [4]*modelPublisher
	// Slots 0 to 4 are subscribers, 5 to 7 members of group 0.
	subscribers [5]*modelSubscriber
	members     [3]*modelMember

	groupStart Position
	given      map[Position]int  // how often the group's members were handed a frame
	finished   map[Position]bool // frames that the group is done with
}

func newMachine(t *rapid.T) *machine {
	c := Config{
		Capacity: rapid.SampledFrom([]uint64{4096, 8192}).Draw(t, "capacity"), Publishers: 4, Subscribers: 8, Groups: 1,
		Start: rapid.SampledFrom(starts).Draw(t, "start"), Key: rapid.Uint64().Draw(t, "key"),
		Fenced: rapid.Bool().Draw(t, "fenced"),
	}
	sizes, err := c.Footprint()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Format(Memory{heapBytes(int(sizes.Ctl)), heapBytes(int(sizes.Cursors)), heapBytes(int(sizes.Data))}, c)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{r: r, tail: c.Start, groupStart: c.Start, given: map[Position]int{}, finished: map[Position]bool{}}
	m.must(t, r.OpenGroup(0, Latest(), never))
	return m
}

func (m *machine) must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) check(t *rapid.T) {
	if m.r.Tail() != m.tail {
		t.Fatalf("tail %d, want %d", m.r.Tail(), m.tail)
	}
	if bad := m.r.CheckCursors(); len(bad) != 0 {
		t.Fatalf("%+v", bad)
	}
	for i, s := range m.subscribers {
		if s == nil {
			continue
		}
		st, err := m.r.SubscriberState(i)
		m.must(t, err)
		if st.Position != s.s.Position() {
			t.Fatalf("subscriber %d: slot says %d, it says %d", i, st.Position, s.s.Position())
		}
		if st.Policy == Reliable && m.tail.Sub(st.Position) > int64(m.r.cfg.Capacity) {
			t.Fatalf("reliable subscriber %d is lapped: at %d, tail %d", i, st.Position, m.tail)
		}
	}
}

// place is where a claim of need bytes comes to lie.
func (m *machine) place(need uint64) (first, end Position) {
	first = m.tail
	if off := uint64(m.tail) & m.r.mask; off+need > m.r.cfg.Capacity {
		first += Position(m.r.cfg.Capacity - off)
	}
	return first, first.Add(need)
}

// fits reports whether publisher self has room for a claim of need bytes.
func (m *machine) fits(self int, need uint64) bool {
	_, end := m.place(need)
	capacity := m.r.cfg.Capacity
	room := func(p Position) bool { return end.Sub(p) <= int64(capacity) }
	ok := room(m.tail)
	for i, p := range m.publishers {
		if word := m.r.publishers[i].intent.Load(); p != nil && i != self && word != 0 {
			if at := Position(word &^ intentFlag); m.tail.Sub(at) <= int64(capacity) {
				ok = ok && room(at)
			}
		}
	}
	for _, s := range m.subscribers {
		if s == nil || s.s.Policy() == Lossy {
			continue
		}
		at := s.s.Position()
		s.exact = true
		for i := range m.r.publishers {
			limit := Position(m.r.publishers[i].limit.Load())
			s.exact = s.exact && (!m.r.active.has(i) || limit.Sub(at) <= int64(s.lag))
		}
		if m.r.subscribers[s.s.Index()].state.Load()&subState == subEvicted {
			continue // it has not noticed yet
		}
		if s.lag == 0 {
			ok = ok && room(at)
			continue
		}
		lag, all := uint64(m.tail.Sub(at)), uint64(end.Sub(m.tail))
		if lag != 0 && lag+all > s.lag {
			continue // will be evicted
		}
		ok = ok && uint64(end.Sub(at)) <= min(max(s.lag, all), capacity)
	}
	gs, _ := m.r.GroupState(0)
	// A stale intent may be younger than a limit that reaches beyond what it allows.
	return ok && room(m.tail-Position(gs.Lag)) || !Position(m.publishers[self].p.limit).Before(end)
}

// evictions checks what a claim that wanted to end need bytes behind tail did to
// subscribers with a bound.
func (m *machine) evictions(t *rapid.T, before Position, wanted uint64) {
	for i, s := range m.subscribers {
		if s == nil || s.s.policy != Evict || s.lag == 0 {
			continue
		}
		evicted := m.r.subscribers[i].state.Load()&subState == subEvicted
		lag := uint64(before.Sub(s.s.Position()))
		if evicted && s.s.gates && (lag == 0 || lag+wanted <= s.lag) && m.r.gating.has(i) && !s.s.Ready() {
			t.Fatalf("subscriber %d with bound %d was evicted at lag %d by a claim of %d", i, s.lag, lag, wanted)
		}
		if !evicted && lag != 0 && s.exact && uint64(m.tail.Sub(s.s.Position())) > s.lag && m.tail != before {
			t.Fatalf("subscriber %d with bound %d was not evicted at lag %d", i, s.lag, m.tail.Sub(s.s.Position()))
		}
	}
}

func (m *machine) payload(t *rapid.T, what string) []byte {
	m.ids++
	n := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, int(m.r.cfg.MaxPayload))).Draw(t, what)
	return message(m.ids, n)
}

func (m *machine) publisher(t *rapid.T) (int, *modelPublisher) {
	i := rapid.IntRange(0, len(m.publishers)-1).Draw(t, "publisher")
	if m.publishers[i] == nil {
		m.must(t, m.r.AdmitPublisher(i))
		p, err := m.r.Publisher(i, PublisherOptions{})
		m.must(t, err)
		m.publishers[i] = &modelPublisher{p: p, entry: -1}
	}
	p := m.publishers[i]
	if p.dead {
		t.Skip("dead")
	}
	return i, p
}

// admitted checks the outcome of wanting a claim of need bytes, and says whether there is one.
func (m *machine) admitted(t *rapid.T, fits bool, need uint64, err error) bool {
	if fits != (err == nil) || err != nil && err != ErrBackpressure {
		t.Fatalf("claim of %d at %d: %v, fits: %v", need, m.tail, err, fits)
	}
	before := m.tail
	_, end := m.place(need)
	if err == nil {
		m.tail = end
	}
	m.evictions(t, before, uint64(end.Sub(before)))
	return err == nil
}

func (m *machine) Publish(t *rapid.T) {
	i, p := m.publisher(t)
	b := m.payload(t, "size")
	if p.entry >= 0 {
		if err := p.p.TryPublish(b); err != ErrClaimed {
			t.Fatal(err)
		}
		return
	}
	need := frameSize(uint64(len(b)))
	at, _ := m.place(need)
	claim, fits := m.tail, m.fits(i, need)
	if m.admitted(t, fits, need, p.p.TryPublish(b)) {
		m.log = append(m.log, entry{at: at, claim: claim, payload: string(b), source: i, state: entryData})
	}
}

func (m *machine) Claim(t *rapid.T) {
	i, p := m.publisher(t)
	b := m.payload(t, "size")
	if p.entry >= 0 {
		t.Skip("has a claim")
	}
	need := frameSize(uint64(len(b)))
	at, _ := m.place(need)
	start, fits := m.tail, m.fits(i, need)
	c, err := p.p.Claim(len(b))
	if m.admitted(t, fits, need, err) {
		copy(c.Payload, b)
		p.claim, p.entry = c, len(m.log)
		m.log = append(m.log, entry{at: at, claim: start, payload: string(b), source: i, state: entryOpen})
	}
}

func (m *machine) Finish(t *rapid.T) {
	_, p := m.publisher(t)
	if p.entry < 0 {
		t.Skip("no claim")
	}
	e := &m.log[p.entry]
	p.entry = -1
	switch rapid.IntRange(0, 2).Draw(t, "how") {
	case 0:
		n := rapid.IntRange(0, len(e.payload)).Draw(t, "length")
		m.must(t, p.claim.CommitN(n))
		e.state, e.payload = entryData, e.payload[:n]
	case 1:
		m.must(t, p.claim.Commit())
		e.state = entryData
	case 2:
		m.must(t, p.claim.Abort())
		e.state = entryVoid
	}
	if err := p.claim.Commit(); err != ErrNotClaimed {
		t.Fatal(err)
	}
}

func (m *machine) Batch(t *rapid.T) {
	i, p := m.publisher(t)
	if p.entry >= 0 {
		t.Skip("has a claim")
	}
	batch := make([][]byte, rapid.IntRange(0, 12).Draw(t, "frames"))
	total := uint64(0)
	for j := range batch {
		batch[j] = m.payload(t, "size")
		total += frameSize(uint64(len(batch[j])))
	}
	n, err := p.p.TryPublishBatch(batch)
	// The list learns where the frames are from the memory itself; they are all there is
	// between the old tail and the new one.
	claim := m.tail
	for done := 0; m.tail != m.r.Tail(); {
		off := uint64(m.tail) & m.r.mask
		h := header(m.r.data.plain(off + offMeta))
		if m.r.data.plain(off) != stampOf(uint64(m.tail), m.r.cfg.Key) {
			t.Fatalf("a batch is not committed at %d", m.tail)
		}
		if !h.inner() {
			claim = m.tail
		}
		if h.kind() == kindData {
			m.log = append(m.log, entry{at: m.tail, claim: claim, payload: string(batch[done]), source: i, state: entryData})
			done++
		} else if off+h.size() != m.r.cfg.Capacity {
			t.Fatalf("padding of %d in a batch at %d", h.size(), m.tail)
		}
		m.tail = m.tail.Add(h.size())
		if m.tail == m.r.Tail() && done != n {
			t.Fatalf("%d frames of a batch, it says %d", done, n)
		}
	}
	switch {
	case err == nil && n == len(batch):
	case err == ErrBackpressure && n < len(batch):
		if m.fits(i, frameSize(uint64(len(batch[n])))) {
			t.Fatalf("stopped at %d of %d although it fits", n, len(batch))
		}
	default:
		t.Fatalf("%d of %d: %v", n, len(batch), err)
	}
}

// KillPublisher leaves an open claim, a stale intent, a half-made limit, or nothing.
func (m *machine) KillPublisher(t *rapid.T) {
	i, p := m.publisher(t)
	slot := &m.r.publishers[i]
	if p.entry < 0 {
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0: // after its intent
			slot.intent.Store(uint64(m.tail) | intentFlag)
		case 1: // with one that is stale
			if len(m.log) > 0 {
				e := m.log[rapid.IntRange(0, len(m.log)-1).Draw(t, "stale")]
				if e.state != entryOpen { // an open claim has one owner only
					slot.intent.Store(uint64(e.claim) | intentFlag)
				}
			}
		case 2: // in its room check
			slot.counter.Begin()
		}
	}
	p.dead = true
	m.must(t, m.r.CondemnPublisher(i))
}

func (m *machine) RepairPublisher(t *rapid.T) {
	i := rapid.IntRange(0, len(m.publishers)-1).Draw(t, "publisher")
	if p := m.publishers[i]; p != nil && p.dead {
		m.repair(t, i)
	} else {
		t.Skip("not dead")
	}
}

func (m *machine) repair(t *rapid.T, i int) {
	intent := m.r.publishers[i].intent.Load()
	done, err := m.r.RepairPublisher(i)
	if err == ErrRepairPending {
		for j, p := range m.publishers {
			if p != nil && !p.dead && m.r.publishers[j].intent.Load() == intent {
				return
			}
		}
	}
	m.must(t, err)
	if done.Filled {
		m.filled(t, done)
	}
	if p := m.publishers[i]; p.entry >= 0 {
		t.Fatalf("publisher %d left %v, and it was not filled", i, m.log[p.entry])
	}
	m.publishers[i] = nil
}

// filled notes what repair filled: an open claim, of the one that it repairs after or of
// another that is dead and whose position the former had tried to claim.
func (m *machine) filled(t *rapid.T, done Repair) {
	for j, p := range m.publishers {
		if p == nil || p.entry < 0 || m.log[p.entry].claim != done.From {
			continue
		}
		e := &m.log[p.entry]
		if m.r.publishers[j].state.Load() == pubActive || done.To != e.at.Add(frameSize(uint64(len(e.payload)))) {
			t.Fatalf("%+v, of publisher %d's %v", done, j, *e)
		}
		e.state, p.entry = entryVoid, -1
		return
	}
	t.Fatalf("%+v, where no claim is open", done)
}

func (m *machine) ClosePublisher(t *rapid.T) {
	i, p := m.publisher(t)
	m.must(t, p.p.Close())
	if p.entry >= 0 {
		m.log[p.entry].state, p.entry = entryVoid, -1
	}
	m.must(t, m.r.CondemnPublisher(i))
	m.repair(t, i)
}

func TestMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		actions := map[string]func(*rapid.T){
			"":                m.check,
			"publish":         m.Publish,
			"publish more":    m.Publish,
			"claim":           m.Claim,
			"finish":          m.Finish,
			"batch":           m.Batch,
			"kill publisher":  m.KillPublisher,
			"repair":          m.RepairPublisher,
			"close publisher": m.ClosePublisher,
			"join":            m.Join,
			"poll":            m.Poll,
			"poll more":       m.Poll,
			"leave":           m.Leave,
			"member":          m.PollMember,
			"member more":     m.PollMember,
			"kill member":     m.KillMember,
			"reap":            m.Reap,
			"dead letters":    m.DeadLetters,
		}
		for range 5 { // a run of rapid's is some 30 steps
			t.Repeat(actions)
		}
		m.end(t)
	})
}

var errRefused = errors.New("refused")

func (e entry) String() string {
	return fmt.Sprintf("{%d of claim %d, %d bytes by %d, state %d}", e.at, e.claim, len(e.payload), e.source, e.state)
}
