package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

// Frames of the torture: who, its how-manieth, a checksum, and noise.
const torturePrefix = 16

func tortureFrame(b []byte, who, n uint32, rng *rand.Rand) []byte {
	for i := torturePrefix; i < len(b); i++ {
		b[i] = byte(rng.Uint32())
	}
	binary.LittleEndian.PutUint32(b, who)
	binary.LittleEndian.PutUint32(b[4:], n)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(b)))
	binary.LittleEndian.PutUint32(b[8:], crc32.ChecksumIEEE(b[12:])+who+n)
	return b
}

func readTorture(b []byte) (who, n uint32, ok bool) {
	if len(b) < torturePrefix || binary.LittleEndian.Uint32(b[12:]) != uint32(len(b)) {
		return 0, 0, false
	}
	who, n = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	return who, n, binary.LittleEndian.Uint32(b[8:]) == crc32.ChecksumIEEE(b[12:])+who+n
}

// torture is one run: its parts stop when all that was published has arrived.
type torture struct {
	t     *testing.T
	r     *Ring
	count uint32 // frames of each publisher
	live  atomic.Int32
	stop  atomic.Bool
}

func (x *torture) fail(format string, args ...any) {
	x.t.Errorf(format, args...)
	x.stop.Store(true)
}

// publish publishes count frames in every way there is.
func (x *torture) publish(who uint32, p *Publisher, rng *rand.Rand) {
	defer x.live.Add(-1)
	scratch := make([][]byte, 8)
	for n := uint32(0); n < x.count && !x.stop.Load(); {
		size := func() int {
			if rng.IntN(10) == 0 {
				return torturePrefix + rng.IntN(int(x.r.cfg.MaxPayload)-torturePrefix+1)
			}
			return torturePrefix + rng.IntN(100)
		}
		var err error
		done := 0
		switch rng.IntN(4) {
		case 0:
			if err = p.TryPublish(tortureFrame(make([]byte, size()), who, n, rng)); err == nil {
				done = 1
			}
		case 1:
			k := min(1+rng.IntN(len(scratch)), int(x.count-n))
			for i := range k {
				scratch[i] = tortureFrame(make([]byte, size()), who, n+uint32(i), rng)
			}
			done, err = p.TryPublishBatch(scratch[:k])
		case 2:
			var c Claim
			keep := size()
			if c, err = p.Claim(min(keep+rng.IntN(100), int(x.r.cfg.MaxPayload))); err == nil {
				tortureFrame(c.Payload[:keep], who, n, rng)
				if err = c.CommitN(keep); err == nil {
					done = 1
				}
			}
		case 3:
			var c Claim
			if c, err = p.Claim(size()); err == nil {
				tortureFrame(c.Payload, who, n+1000, rng) // nobody may ever see it
				err = c.Abort()
			}
		}
		n += uint32(done)
		if err == ErrBackpressure {
			runtime.Gosched()
		} else if err != nil {
			x.fail("publisher %d: %v", who, err)
		}
	}
}

// reader checks what one reader sees. Positions only grow; so do each publisher's numbers.
type tortureReader struct {
	x      *torture
	name   string
	last   Position
	any    bool
	next   []uint32
	gaps   bool // numbers may be missing
	frames uint32
}

func (x *torture) reader(name string, publishers int, gaps bool) *tortureReader {
	return &tortureReader{x: x, name: name, next: make([]uint32, publishers), gaps: gaps}
}

func (s *tortureReader) frame(f Frame) error {
	who, n, ok := readTorture(f.Payload)
	if !ok || int(who) >= len(s.next) || who != uint32(f.Source) {
		s.x.fail("%s: torn frame of %d bytes at %d from %d", s.name, len(f.Payload), f.Position, f.Source)
		return ErrStop
	}
	if s.any && !s.last.Before(f.Position) {
		s.x.fail("%s: %d after %d", s.name, f.Position, s.last)
	}
	if n < s.next[who] || n != s.next[who] && !s.gaps {
		s.x.fail("%s: frame %d of publisher %d, want %d", s.name, n, who, s.next[who])
	}
	s.last, s.any, s.next[who] = f.Position, true, n+1
	s.frames++
	return nil
}

// read polls until no publisher is left and nothing more comes.
func (s *tortureReader) read(sub *Subscriber, rng *rand.Rand) {
	for !s.x.stop.Load() {
		over := s.x.live.Load() == 0
		n, err := sub.Poll(1+rng.IntN(50), s.frame)
		var gap *GapError
		if errors.As(err, &gap) {
			if !s.gaps || s.any && gap.From.Before(s.last) || gap.To != sub.Position() {
				s.x.fail("%s: %v, last frame at %d", s.name, err, s.last)
			}
			continue
		}
		if err == ErrEvicted && s.gaps {
			continue
		}
		if err != nil {
			s.x.fail("%s: %v", s.name, err)
		}
		if n == 0 {
			if over && !sub.Ready() {
				return
			}
			runtime.Gosched()
		}
	}
}

// TestTorture: publishers of every kind, readers of every policy and a group, all at once.
func TestTorture(t *testing.T) {
	watchdog(t, 5*time.Minute)
	for _, capacity := range []uint64{4096, 1 << 16} {
		for _, start := range []Position{0, starts[2]} {
			t.Run(fmt.Sprintf("capacity=%d,start=%#x", capacity, uint64(start)), func(t *testing.T) { runTorture(t, capacity, start) })
		}
	}
}

func runTorture(t *testing.T, capacity uint64, start Position) {
	const publishers = 4
	seed := uint64(testutil.Seed(t))
	rng := func(i uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, i)) }
	c := small(start)
	c.Capacity = capacity
	x := &torture{t: t, r: heap(t, c), count: 4000}
	if raceEnabled {
		x.count = 1000
	}
	r := x.r
	x.live.Store(publishers)

	readers := []*tortureReader{
		x.reader("reliable 0", publishers, false), x.reader("reliable 1", publishers, false),
		x.reader("lossy", publishers, true), x.reader("evicting", publishers, true),
	}
	subs := []*Subscriber{reliable(t, r, 0), reliable(t, r, 1), lossy(t, r, 2), evicting(t, r, 3, capacity/2, 0)}
	must(t, r.OpenGroup(0, Latest(), never))
	members := []*Member{member(t, r, 0, 4), member(t, r, 0, 5)}
	var ps []*Publisher
	for i := range publishers {
		ps = append(ps, publisher(t, r, i))
	}

	var all sync.WaitGroup
	for i, p := range ps {
		all.Go(func() { x.publish(uint32(i), p, rng(uint64(i))) })
	}
	for i, s := range readers {
		all.Go(func() { s.read(subs[i], rng(100+uint64(i))) })
	}
	given := make([]map[[2]uint32]int, len(members))
	for i, m := range members {
		given[i] = map[[2]uint32]int{}
		all.Go(func() { x.work(m, given[i], rng(200+uint64(i))) })
	}
	all.Go(func() { x.visit(6, rng(300)) })
	all.Wait()

	for _, s := range readers[:2] {
		if s.frames != publishers*x.count {
			t.Errorf("%s: %d frames of %d", s.name, s.frames, publishers*x.count)
		}
	}
	for who := range uint32(publishers) {
		for n := range x.count {
			if k := [2]uint32{who, n}; given[0][k]+given[1][k] != 1 {
				t.Fatalf("frame %d of publisher %d was finished %d times by the group", n, who, given[0][k]+given[1][k])
			}
		}
	}
	t.Logf("lossy saw %d, evicting %d of %d; members finished %d and %d", readers[2].frames, readers[3].frames, publishers*x.count,
		len(given[0]), len(given[1]))
}

// work is a member's life. Now and then it refuses a frame, which is then somebody's again.
func (x *torture) work(m *Member, finished map[[2]uint32]int, rng *rand.Rand) {
	for !x.stop.Load() {
		over := x.live.Load() == 0
		refuse := rng.IntN(40)
		n, err := m.Poll(1+rng.IntN(10), func(f Frame) error {
			who, k, ok := readTorture(f.Payload)
			if !ok {
				x.fail("member %d: torn frame at %d", m.ID(), f.Position)
			}
			if refuse--; refuse == 0 {
				return errRefused
			}
			finished[[2]uint32{who, k}]++
			return nil
		})
		if err != nil && err != errRefused {
			x.fail("member %d: %v", m.ID(), err)
		}
		if n == 0 && err == nil {
			if over && !m.Ready() {
				gs, _ := x.r.GroupState(0)
				if gs.Orphans == 0 && gs.Lag == 0 {
					return
				}
			}
			runtime.Gosched()
		}
	}
}

// visit joins and leaves, at latest, earliest or a position, while publishers run: from
// where it joined on, a reliable reader misses nothing.
func (x *torture) visit(slot int, rng *rand.Rand) {
	yield := func() error { runtime.Gosched(); return nil }
	for x.live.Load() > 0 && !x.stop.Load() {
		if err := x.r.AdmitSubscriber(slot, SubscriberConfig{Policy: Reliable}); err != nil {
			x.fail("visitor: %v", err)
			return
		}
		s, err := x.r.Subscriber(slot, SubscriberOptions{})
		if err != nil {
			x.fail("visitor: %v", err)
			return
		}
		froms := []Start{Latest(), Earliest(), At(x.r.Earliest()), At(x.r.Tail() - Position(rng.Uint64N(x.r.cfg.Capacity/64)*64))}
		if from := froms[rng.IntN(len(froms))]; from.kind == startAt && from.pos.Before(x.r.cfg.Start) {
			err = s.Join(Latest(), yield)
		} else {
			err = s.Join(from, yield)
		}
		if err != nil {
			x.fail("visitor: %v", err)
		}
		v := x.reader("visitor", 4, false)
		first := make([]bool, 4)
		for range 1 + rng.IntN(30) {
			if _, err := s.Poll(20, func(f Frame) error {
				if who, n, ok := readTorture(f.Payload); ok && int(who) < 4 && !first[who] {
					first[who], v.next[who] = true, n // it may begin anywhere, and then misses none
				}
				return v.frame(f)
			}); err != nil && !errors.Is(err, ErrOverrun) {
				x.fail("visitor: %v", err)
			}
			runtime.Gosched()
		}
		if err := s.Close(); err != nil {
			x.fail("visitor: %v", err)
		}
		if err := x.r.ReleaseSubscriber(slot); err != nil {
			x.fail("visitor: %v", err)
		}
	}
}
