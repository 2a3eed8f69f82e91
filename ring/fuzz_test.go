package ring

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
)

// hostile is a ring in use, of which peers write what they like, wherever they can.
type hostile struct {
	t      testing.TB
	r      *Ring
	m      Memory
	pubs   []*Publisher
	subs   []*Subscriber
	mems   []*Member
	watch  *StallWatch
	now    time.Time
	read   int // bytes of payloads
	joined int
}

// knownErrors are all that memory, whatever it says, may be answered with.
var knownErrors = []error{
	ErrBackpressure, ErrTooLarge, ErrClaimed, ErrNotClaimed, ErrOverrun, ErrEvicted, ErrCorrupt, ErrClosed, ErrRepairPending,
	ErrSlot, ErrFull, ErrConfig, ErrUngated, ErrMagic, ErrVersion, ErrGeometry, ErrTopicID, errRefused, errGaveUp,
}

var errGaveUp = errors.New("gave up waiting")

func newHostile(t testing.TB, start Position) *hostile {
	c := small(start)
	h := &hostile{t: t, m: heapMemory(t, c), now: time.Unix(1, 0)}
	var err error
	h.r, err = Format(h.m, c)
	must(t, err)
	h.watch = NewStallWatch(h.r)
	for i := range 3 {
		h.pubs = append(h.pubs, publisher(t, h.r, i))
	}
	h.subs = append(h.subs, reliable(t, h.r, 0), lossy(t, h.r, 1), evicting(t, h.r, 2, 1024, time.Second))
	must(t, h.r.OpenGroup(0, Latest(), never))
	h.mems = append(h.mems, member(t, h.r, 0, 3), member(t, h.r, 0, 4))
	for i := range 70 { // more than a lap
		must(t, h.pubs[i%3].TryPublish(message(uint64(i), i)))
		for _, p := range []poller{h.subs[0], h.subs[2], h.mems[i%2]} {
			drain(t, p)
		}
	}
	return h
}

func (h *hostile) known(err error) {
	if err != nil && !slices.ContainsFunc(knownErrors, func(k error) bool { return errors.Is(err, k) }) {
		h.t.Fatalf("unknown error %v", err)
	}
}

func (h *hostile) handler(f Frame) error {
	for _, b := range f.Payload { // all of it can be read
		h.read += int(b)
	}
	if !f.Position.Aligned() || len(f.Payload) > int(h.r.cfg.MaxPayload) {
		h.t.Fatalf("frame of %d bytes at %d", len(f.Payload), f.Position)
	}
	if h.read%5 == 0 {
		return errRefused
	}
	return nil
}

// giveUp is a wait that ends.
func giveUp(after int) func() error {
	return func() error {
		if after--; after < 0 {
			return errGaveUp
		}
		return nil
	}
}

// recordSize is the size of one step of a fuzz input: what, where (2), value (8).
const recordSize = 11

// write is what a peer does: any word of memory that is not the header, or a frame
// header with a stamp that is right, or a position near tail.
func (h *hostile) write(what byte, where uint16, value uint64) {
	word := func(b []byte, from int) {
		off := (from + int(where)*8) % (len(b) &^ 7)
		if off < from {
			off = from
		}
		binary.LittleEndian.PutUint64(b[off:], value)
	}
	near := uint64(h.r.Tail()) + uint64(int64(int16(value>>16)))*64 + value&0xff
	switch what % 8 {
	case 0:
		word(h.m.Ctl, headerSize)
	case 1:
		word(h.m.Cursors, 40)
	case 2:
		word(h.m.Data, 0)
	case 3: // a frame that passes for one
		p := uint64(h.r.Tail()) + uint64(int64(int16(where)))*64
		off := p & h.r.mask
		binary.LittleEndian.PutUint64(h.m.Data[off:], stampOf(p, h.r.cfg.Key))
		binary.LittleEndian.PutUint64(h.m.Data[off+8:], value)
	case 4:
		h.r.tail.Store(near)
	case 5:
		value = near
		word(h.m.Cursors, 40)
	case 6:
		value = near
		word(h.m.Ctl, offTail)
	case 7: // a plausible frame header: small length, a kind
		p := uint64(h.r.Tail()) + uint64(int64(int8(where)))*64
		off := p & h.r.mask
		binary.LittleEndian.PutUint64(h.m.Data[off:], stampOf(p, h.r.cfg.Key))
		binary.LittleEndian.PutUint64(h.m.Data[off+8:], value&0x0000_0303_0000_0fff)
	}
}

// do is what a client or the broker does next.
func (h *hostile) do(what byte, where uint16, value uint64) {
	i, n := int(where), int(value%1100)
	p, s, m := h.pubs[i%len(h.pubs)], h.subs[i%len(h.subs)], h.mems[i%len(h.mems)]
	switch what % 16 {
	case 0:
		h.known(p.TryPublish(make([]byte, n)))
	case 1:
		_, err := p.TryPublishBatch([][]byte{make([]byte, n/2), make([]byte, n), nil})
		h.known(err)
	case 2:
		c, err := p.Claim(n)
		h.known(err)
		if err == nil {
			clear(c.Payload)
			h.known(c.CommitN(n / 2))
		}
	case 3:
		_, err := s.Poll(50, h.handler)
		h.known(err)
		s.Ready()
	case 4:
		_, err := byBatch(s)(150, h.handler)
		h.known(err)
		s.Ready()
	case 5, 6:
		_, err := m.Poll(50, h.handler)
		h.known(err)
		m.Ready()
	case 7:
		h.join(i, Position(value))
	case 8:
		h.known(h.r.CondemnPublisher(i % 4))
		_, err := h.r.RepairPublisher(i % 4)
		h.known(err)
		h.known(h.r.AdmitPublisher(i % 4))
	case 9:
		_, err := h.r.ReapMember(i%3, n%64)
		h.known(err)
		_, err = h.r.AdmitMember(i%3, n%9)
		h.known(err)
	case 10:
		_, err := h.r.DeadLetters(i%3, n%3, h.handler)
		h.known(err)
		_, err = h.r.Reoffer(i%3, n%3)
		h.known(err)
	case 11:
		h.r.CheckCursors()
		h.states()
		h.audit(i)
	case 12:
		h.now = h.now.Add(time.Duration(value % uint64(2*time.Second)))
		h.watch.Check(h.now)
	case 13:
		p.Fits(n)
		h.r.Earliest()
		_, err := h.r.State()
		h.known(err)
	case 14:
		h.known(h.r.CloseGroup(i % 3))
		h.known(h.r.OpenGroup(i%3, h.start(i, Position(value)), giveUp(20)))
	case 15:
		_, err := Attach(h.m)
		h.known(err)
		_, _, err = Adopt(h.m)
		h.known(err)
		h.known(h.r.ReleaseSubscriber(i % 9))
	}
}

// audit is what the broker does now and then.
func (h *hostile) audit(i int) {
	h.r.AuditHeader()
	for slot := -1; slot < 10; slot++ {
		want := Audited{Config: SubscriberConfig{Policy: Policy(i%4 + 1)}, Group: i % 3, Member: i % 64}
		if _, ok := h.r.AuditSubscriber(slot, want); !ok && i&8 != 0 {
			h.r.Expel(slot)
		}
	}
	yes := func(int) bool { return i&4 == 0 }
	h.r.AuditUnused(yes, yes, func(int, int) bool { return i&2 == 0 })
	h.r.AuditGroup(i%3, map[int]int{i % 64: i % 9})
}

func (h *hostile) start(i int, p Position) Start {
	return []Start{Latest(), Earliest(), At(p), At(h.r.Tail() - p%8192&^63)}[i>>4%4]
}

func (h *hostile) join(i int, p Position) {
	slot := 5 + i%3
	h.known(h.r.ReleaseSubscriber(slot))
	policy := []SubscriberConfig{{Policy: Reliable}, {Policy: Lossy}, {Policy: Evict, EvictLag: 64}}[i>>2%3]
	h.known(h.r.AdmitSubscriber(slot, policy))
	s, err := h.r.Subscriber(slot, SubscriberOptions{})
	h.known(err)
	if err != nil {
		return
	}
	err = s.Join(h.start(i, p), giveUp(20))
	h.known(err)
	if err == nil {
		_, err := s.Poll(50, h.handler)
		h.known(err)
		h.joined++
	}
}

func (h *hostile) states() {
	for i := range 9 {
		_, err := h.r.PublisherState(i)
		h.known(err)
		_, err = h.r.SubscriberState(i)
		h.known(err)
		_, err = h.r.GroupState(i)
		h.known(err)
	}
}

// script runs a fuzz input: the top bit of a step says who acts.
func (h *hostile) script(input []byte) {
	for ; len(input) >= recordSize; input = input[recordSize:] {
		what, where, value := input[0], binary.LittleEndian.Uint16(input[1:]), binary.LittleEndian.Uint64(input[3:])
		if what&0x80 != 0 {
			h.write(what, where, value)
		} else {
			h.do(what, where, value)
		}
	}
	for what := range byte(16) { // and in the end, everything once more
		for where := range uint16(3) {
			h.do(what, where, uint64(what)*977+uint64(where))
		}
	}
}

// step is one step of a fuzz input.
func step(what byte, where uint16, value uint64) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{what}, where)
	return binary.LittleEndian.AppendUint64(b, value)
}

func seeds(f *testing.F) {
	f.Add([]byte(nil), false)
	everything := []byte(nil)
	for what := range byte(16) {
		everything = append(everything, step(what, uint16(what), 12345)...)
	}
	f.Add(everything, true)
	for _, one := range [][]byte{
		step(0x84, 0, 7), step(0x84, 0, 63|1<<16), step(0x84, 0, 1<<30), step(0x80, 0, 1<<62), step(0x81, 55, 1<<64-1),
		step(0x83, 0, 1<<32-1), step(0x83, 0, 1<<32|1<<30), step(0x87, 0, 0x2_0000_0030), step(0x85, 123, 63), step(0x86, 128, 1),
		step(0x81, 48, 1<<64-1), step(0x81, 64, 1<<64-1), step(0x82, 9, 1), step(0x81, 640, 1<<63|1),
	} {
		f.Add(slices.Concat(one, everything), true)
		f.Add(slices.Concat(everything, one, one, step(8, 1, 1), step(3, 1, 0), step(5, 0, 0)), false)
	}
}

// mostAllocated is what one input may make us allocate, in bytes: payloads of its own
// publishing, mostly. What a peer writes must have no say in it.
const mostAllocated = 8 << 20

// FuzzHostileMemory: whatever is written wherever a peer can write, between any two
// calls, nobody panics, hangs, or allocates without bound.
func FuzzHostileMemory(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, input []byte, high bool) {
		if len(input) > 400*recordSize {
			t.Skip("longer than it needs to be")
		}
		start := starts[0]
		if high {
			start = starts[2]
		}
		h := newHostile(t, start)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.script(input)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > mostAllocated {
			t.Errorf("%d bytes allocated", n)
		}
	})
}

// FuzzAttach: a header of any bytes is refused, or describes a ring that fits its memory
// and can be used.
func FuzzAttach(f *testing.F) {
	for _, c := range []Config{small(0), {Capacity: 4096}, {Capacity: 8192, Exclusive: true, Fenced: true, Start: starts[1]}} {
		m := Memory{Ctl: heapBytes(1 << 16), Cursors: heapBytes(1 << 17), Data: heapBytes(int(c.Capacity))}
		if _, err := Format(m, c); err != nil {
			f.Fatal(err)
		}
		f.Add(m.Ctl[:headerSize], m.Cursors[:40], uint16(4096))
		f.Add(m.Ctl[:headerSize], m.Cursors[:40], uint16(64))
	}
	f.Add([]byte{}, []byte{}, uint16(0))
	f.Fuzz(func(t *testing.T, ctl, cursors []byte, size uint16) {
		m := Memory{Ctl: heapBytes(int(size) + 2560), Cursors: heapBytes(int(size) + 7680), Data: heapBytes(4096)}
		copy(m.Ctl[:headerSize], ctl)
		copy(m.Cursors[:40], cursors)
		r, err := Attach(m)
		if err != nil {
			h := hostile{t: t}
			h.known(err)
			return
		}
		c := r.Config()
		must(t, c.Check())
		sizes, err := c.Footprint()
		must(t, err)
		if int(sizes.Ctl) > len(m.Ctl) || int(sizes.Cursors) > len(m.Cursors) || int(sizes.Data) != len(m.Data) || c.MaxPayload == 0 {
			t.Fatalf("%+v attached to %d, %d, %d bytes", c, len(m.Ctl), len(m.Cursors), len(m.Data))
		}
		r.tail.Store(uint64(c.Start))
		last := c.Publishers - 1
		p := publisher(t, r, last)
		s := reliable(t, r, c.Subscribers-1)
		must(t, r.OpenGroup(c.Groups-1, Latest(), never))
		must(t, p.TryPublish(nil))
		if got := drain(t, s); len(got) != 1 || int(got[0].source) != last {
			t.Errorf("%+v", got)
		}
	})
}
