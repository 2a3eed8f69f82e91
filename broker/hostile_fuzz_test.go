package broker

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

// FuzzTopicMemory is a client that writes anything into a topic's memory between its requests: all of them are answered, by
// what the protocol has for it, and another topic is as it was. Each step is a byte that says what is done, where (2
// bytes) and a value (8).
func FuzzTopicMemory(f *testing.F) {
	step := func(what byte, where uint16, value uint64) []byte {
		b := binary.LittleEndian.AppendUint16([]byte{what}, where)
		return binary.LittleEndian.AppendUint64(b, value)
	}
	everything := []byte(nil)
	for what := range byte(8) {
		everything = append(everything, step(what, uint16(what), 3)...)
	}
	f.Add(everything)
	for _, one := range [][]byte{
		step(0x80, 128, 63), step(0xc0, 128, 1000), step(0x81, 48, 1<<64-1), step(0x81, 64, 1<<64-1), step(0x81, 0, 0), step(0xc1, 128, 7), step(0x81, 129, 2), step(0x81, 192, 1<<60),
		step(0x80, 256, 65), step(0x80, 261, 2), step(0x80, 144, 1<<63), step(0x80, 1, 9), step(0x82, 0, 1<<40), step(0x81, 208, 3),
	} {
		f.Add(slices.Concat(one, everything))
		f.Add(slices.Concat(everything, one, everything))
	}
	options := TopicOptions{Capacity: 4096, Pages: "4KiB", Publishers: 3, Subscribers: 6, Groups: 2}
	// A publisher that says that it computes its limit holds up each opening of a group for joinPatience, and fuzzing has 10 s an input.
	s := start(f, Config{Defaults: options, GroupLinger: time.Millisecond, StuckClaim: time.Millisecond, joinPatience: 20 * time.Millisecond})
	safe := s.connect(f)
	safe.create("safe", options)
	_, pub := safe.publisher("safe")
	_, sub := safe.subscriber("safe")
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 100*11 {
			t.Skip("longer than it needs to be")
		}
		p := s.connect(t)
		safe.t = t
		if err := safe.conn.SetReadDeadline(time.Now().Add(4 * time.Minute)); err != nil { // anew: fuzzing may go on for longer
			t.Fatal(err)
		}
		_, _ = safe.ask(control.OpRemove, control.RemoveRequest{Name: "hit"}, nil) // of an input that failed, and is being minimized
		p.create("hit", options)
		v := p.attach(control.AttachRequest{Topic: "hit", Kind: control.KindPublisher})
		h := &vandal{t: t, p: p, v: v}
		h.words[0], h.words[1], h.words[2] = v.segments[0].Bytes(), v.segments[1].Bytes(), v.segments[2].Bytes()
		for ; len(input) >= 11; input = input[11:] {
			h.step(input[0], binary.LittleEndian.Uint16(input[1:]), binary.LittleEndian.Uint64(input[3:]))
		}
		for what := range byte(8) {
			h.step(what, 1, 2)
		}
		publishAll(t, pub, "a", "b")
		if got := payloads(t, sub.Poll); len(got) != 2 {
			t.Errorf("the other topic has %q", got)
		}
		if info := safe.show("safe"); info.Violations != 0 {
			t.Errorf("%+v", info)
		}
		safe.must(control.OpRemove, control.RemoveRequest{Name: "hit"}, nil)
		p.die()
	})
}

// vandal is a client that writes where it can.
type vandal struct {
	t     *testing.T
	p     *peer
	v     *view
	words [3][]byte
	held  []uint64
}

// step writes (0x80: the value; 0xc0: one near tail), or asks.
func (h *vandal) step(what byte, where uint16, value uint64) {
	if what&0x80 != 0 {
		b := h.words[what%0x40%3]
		if what&0x40 != 0 {
			value = binary.LittleEndian.Uint64(h.words[0][1024:]) + uint64(int64(int16(value)))*64 + value>>16&3
		}
		putWord(b, int(where)*8%len(b), value)
		return
	}
	switch what % 8 {
	case 0:
		h.ask(control.OpShow, control.ShowRequest{Name: "hit"})
	case 1:
		h.attach(control.AttachRequest{Kind: control.KindPublisher})
	case 2:
		r := control.AttachRequest{Kind: control.KindSubscriber}
		if where%2 == 1 {
			r.Policy, r.EvictAfter = control.PolicyEvict, time.Millisecond
		}
		h.attach(r)
	case 3:
		h.attach(control.AttachRequest{Kind: control.KindMember, Group: "g", Start: &control.StartPoint{From: []string{"latest", "earliest"}[where%2]}})
	case 4:
		if n := len(h.held); n > 0 {
			i := int(value % uint64(n))
			h.ask(control.OpDetach, control.DetachRequest{Attachment: h.held[i], Revoked: where%2 == 1})
			h.held = slices.Delete(h.held, i, i+1)
		}
	case 5:
		h.ask(control.OpDeadLetter, control.DeadLetterRequest{Topic: "hit", Group: "g"})
	case 6: // by the library, with memory that lies
		if r, err := ring.Attach(ring.Memory{Ctl: h.words[0], Cursors: h.words[1], Data: h.words[2]}); err == nil {
			if pub, err := r.Publisher(h.v.Slot, ring.PublisherOptions{}); err == nil {
				_ = pub.TryPublish([]byte("x")) // the ring's own fuzz targets look at what it says
			}
		}
	case 7:
		h.ask(control.OpList, control.ListRequest{})
	}
}

func (h *vandal) attach(r control.AttachRequest) {
	r.Topic, r.LaneOnly = "hit", true
	var reply control.AttachReply
	if _, err := h.p.ask(control.OpAttach, r, &reply); err == nil {
		h.held = append(h.held, reply.Attachment)
	} else {
		h.known(err)
	}
}

func (h *vandal) ask(op control.Op, body any) {
	_, err := h.p.ask(op, body, nil)
	h.known(err)
}

// known fails for errors that are the broker's own fault.
func (h *vandal) known(err error) {
	var e *control.Error
	if err != nil && !errors.As(err, &e) {
		h.t.Fatalf("no answer: %v", err)
	}
}
