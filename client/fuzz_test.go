package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/doorbell"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

// knownErrors are all that memory, whatever it says, may be answered with.
var knownErrors = []error{
	ErrBackpressure, ErrTooLarge, ErrOverrun, ErrEvicted, ErrCorrupt, ErrNotClaimed, ErrExpelled, ErrTopicRemoved, ErrInUse, os.ErrClosed, errRefusedFrame,
	ring.ErrSlot, ring.ErrFull, ring.ErrConfig, ring.ErrMagic, ring.ErrVersion, ring.ErrGeometry, ring.ErrTopicID, ring.ErrClaimed,
	context.DeadlineExceeded,
}

var errRefusedFrame = errors.New("refused")

func known(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && !slices.ContainsFunc(knownErrors, func(k error) bool { return errors.Is(err, k) }) {
		t.Fatalf("unknown error %v", err)
	}
	return err == nil
}

// A scribble writes a word somewhere into the segments of a topic.
type scribble []byte

const scribbleSize = 11

// next writes, as the first bytes of the input say, and takes them off: which segment, where, and what, near tail or
// anything. A zero first byte is the end of a round.
func (s *scribble) next(segments [3]*shm.Segment) bool {
	if len(*s) < scribbleSize {
		*s = nil
		return false
	}
	what, where, value := (*s)[0], binary.LittleEndian.Uint16((*s)[1:]), binary.LittleEndian.Uint64((*s)[3:])
	*s = (*s)[scribbleSize:]
	if what == 0 {
		return false
	}
	b := segments[what%3].Bytes()
	tail := binary.LittleEndian.Uint64(segments[control.FileCtl].Bytes()[1024:])
	if what&0x40 != 0 {
		value = tail + uint64(int64(int16(value)))*64 + value>>16&3
	}
	off := int(where) * 8 % len(b)
	if what&0x80 != 0 {
		off %= 4096 // headers, and the first slots
	}
	binary.LittleEndian.PutUint64(b[off:], value)
	return true
}

// madeTopic is the memory of a topic as a broker makes it, with two publishers, two subscribers and a member admitted.
func madeTopic(t *testing.T) (segments [3]*shm.Segment, files []*os.File) {
	t.Helper()
	c := ring.Config{Capacity: 4096, Publishers: 3, Subscribers: 4, Groups: 1, Key: 12345}
	sizes, err := c.Footprint()
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range []int64{sizes.Ctl, sizes.Cursors, sizes.Data} {
		if segments[i], err = shm.Create(shm.Options{Name: "fuzz", Size: size, Pages: shm.Pages4KiB}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { segments[i].Close() })
		files = append(files, again(t, segments[i].File()))
	}
	r, err := ring.Format(ring.Memory{Ctl: segments[0].Bytes(), Cursors: segments[1].Bytes(), Data: segments[2].Bytes()}, c)
	if err != nil {
		t.Fatal(err)
	}
	_, merr := r.AdmitMember(0, 3)
	_ = merr // the group is not open yet
	for _, err := range []error{
		r.AdmitPublisher(0), r.AdmitPublisher(1), r.AdmitSubscriber(0, ring.SubscriberConfig{Policy: ring.Reliable}),
		r.AdmitSubscriber(1, ring.SubscriberConfig{Policy: ring.Lossy}), r.AdmitSubscriber(2, ring.SubscriberConfig{Policy: ring.Evict, EvictLag: 512}),
		r.OpenGroup(0, ring.Latest(), func() error { return nil }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.AdmitMember(0, 3); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		bell, err := doorbell.New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { bell.Close() })
		files = append(files, again(t, bell.File()))
	}
	return segments, files
}

// again is another descriptor of the same file.
func again(t *testing.T, f *os.File) *os.File {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if cerr := raw.Control(func(old uintptr) { fd, err = sys.Dup(int(old)) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return os.NewFile(uintptr(fd), "again")
}

// FuzzSegments hands a client a topic's memory in which any word may be anything, before it attaches and while it works.
func FuzzSegments(f *testing.F) {
	step := func(what byte, where uint16, value uint64) []byte {
		b := binary.LittleEndian.AppendUint16([]byte{what}, where)
		return binary.LittleEndian.AppendUint64(b, value)
	}
	end := step(0, 0, 0)
	f.Add([]byte(nil))
	for where := range uint16(17) { // the header
		f.Add(step(0x83, where, 1<<40))
		f.Add(slices.Concat(end, step(0x83, where, 3)))
	}
	for _, one := range [][]byte{
		step(0x83, 128, 63), step(0xc3, 128, 1000), step(0x84, 128, 5), step(0xc4, 128, 70), step(0x84, 48, 1<<64-1), step(0x85, 0, 1<<63), step(0x85, 1, 1<<32-1), step(0x83, 256, 65),
		step(0x84, 64, 0), step(0x84, 200, 1<<62), step(0x83, 259, 1), step(0x83, 64, 1), step(0x83, 66, 1<<63),
	} {
		f.Add(one)
		f.Add(slices.Concat(end, one, end, one, one))
		f.Add(slices.Concat(end, end, one, end, one))
	}
	barriers, err := sys.MembarrierRegister()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 200*scribbleSize {
			t.Skip("longer than it needs to be")
		}
		segments, files := madeTopic(t)
		s := scribble(input)
		for s.next(segments) {
		}
		m, err := openMapping(mappingKey{topicID: "x", publish: true}, "t", files)
		if err != nil {
			known(t, err)
			return
		}
		defer m.close()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		u := &misled{t: t, m: m, c: &Client{log: quiet, barriers: barriers, conn: &connection{closed: true}, attached: map[*attachment]struct{}{}, mappings: map[mappingKey]*mapping{}}}
		u.attach()
		for range 8 {
			for s.next(segments) {
			}
			u.work()
		}
		u.close()
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%d bytes allocated", n)
		}
	})
}

// misled is what uses a topic whose memory lies.
type misled struct {
	t     *testing.T
	m     *mapping
	c     *Client
	lanes []*Lane
	subs  []*Subscriber
	group *Group
}

func (u *misled) attachment(kind control.Kind, slot int) *attachment {
	u.m.refs++
	return &attachment{client: u.c, mem: u.m, topic: "t", kind: kind, ring: u.m.ring, slot: slot, maxRedeliveries: 3, subBell: u.m.subBell, pubBell: u.m.pubBell, barriers: u.c.barriers}
}

// soon is a context that ends by itself, for joins that wait for a publisher.
func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Millisecond)
}

func (u *misled) attach() {
	u.m.refs++ // until the test closes it
	for slot := range 2 {
		if l, err := newLane(u.attachment(control.KindPublisher, slot), WaitYield); known(u.t, err) {
			u.lanes = append(u.lanes, l)
		}
	}
	for slot, start := range []Start{Earliest(), At(u.m.ring.Tail()), Latest()} {
		ctx, stop := soon()
		if s, err := newSubscriber(ctx, u.attachment(control.KindSubscriber, slot), SubscriberOptions{Start: start}); known(u.t, err) {
			u.subs = append(u.subs, s)
		}
		stop()
	}
	g, err := newGroup(u.attachment(control.KindMember, 3), GroupOptions{})
	if known(u.t, err) {
		u.group = g
	}
}

func (u *misled) work() {
	for i, l := range u.lanes {
		known(u.t, l.TryPublish(make([]byte, 100*i)))
		_, err := l.TryPublishBatch([][]byte{make([]byte, 10), make([]byte, 300), nil})
		known(u.t, err)
		if c, err := l.TryClaim(200); known(u.t, err) {
			clear(c.Payload)
			known(u.t, c.CommitN(50*i))
		}
		ctx, stop := soon()
		known(u.t, l.Publish(ctx, make([]byte, 900)))
		stop()
	}
	n := 0
	handler := func(f Frame) error {
		for _, b := range f.Payload { // all of it can be read
			n += int(b)
		}
		if n++; n%7 == 0 {
			return errRefusedFrame
		}
		return nil
	}
	for _, s := range u.subs {
		_, err := s.Poll(20, handler)
		known(u.t, err)
		ctx, stop := soon()
		_, err = s.Next(ctx)
		known(u.t, err)
		stop()
	}
	if u.group != nil {
		_, err := u.group.Poll(20, handler)
		known(u.t, err)
	}
}

func (u *misled) close() {
	for _, l := range u.lanes {
		known(u.t, l.Close())
	}
	for _, s := range u.subs {
		known(u.t, s.Close())
	}
	if u.group != nil {
		known(u.t, u.group.Close())
	}
}

// FuzzReplies is a broker that answers with anything: the client gets an error, and no descriptor stays open.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{
		`{"id":2,"body":{"attachment":1,"topic_id":"x","slot":0}}`, `{"id":2,"error":{"code":"refused","message":"no"}}`, `{"event":"revoke","body":{"attachment":1}}`,
		`{"event":"expelled","body":{"attachment":1}}`, `{"event":"topic_removed","body":{"topic_id":"x"}}`, `{"id":2}`, `{"id":2,"body":7}`, `{"id":3,"body":{}}`, "{", "null", `[]`, `{"event":"x"}`,
		`{"id":2,"body":{"attachment":1,"topic_id":"x","slot":-1,"group":99,"member":-5,"max_redeliveries":-1}}`, `{"id":2,"body":{"topic":{"name":"a"},"next":"b"}}`,
		`{"id":2,"body":{"topics":[{"name":"a"}],"more":true}}`, `{"event":"shutdown","body":{"message":1}}`,
	} {
		for op := range byte(4) {
			f.Add([]byte(seed), []byte(seed), op, op)
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte, op, files byte) {
		if len(first) == 0 || len(second) == 0 || len(first)+len(second) > control.MaxMessage {
			return // an empty packet is the end of a connection
		}
		give := make([]int, files%6) // of descriptor 0
		socket := rawBroker(t, func(s *net.UnixConn) {
			// The client may have gone already.
			_, _, _ = s.WriteMsgUnix(first, sys.Rights(give), nil)
			_, _ = s.Write(second)
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		c, err := Dial(ctx, Options{Socket: socket, Logger: quiet, WaitForBroker: -1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer stop()
		switch op % 4 {
		case 0:
			_, err = c.Lane(ctx, "t", PublisherOptions{})
		case 1:
			_, err = c.Group(ctx, "t", "g", GroupOptions{})
		case 2:
			_, err = c.Topics(ctx)
		case 3:
			_, err = c.Unstick(ctx, "t", UnstickOptions{})
		}
		if op%4 < 2 && err == nil {
			t.Error("attached to nothing")
		}
		if err := c.Close(); err != nil {
			t.Error(fmt.Errorf("close: %w", err))
		}
	})
}

// rawBroker is a broker that says hello, waits for a request, and then lets answer write what it likes.
func rawBroker(t *testing.T, answer func(*net.UnixConn)) (socket string) {
	t.Helper()
	socket = socketPath(t)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer l.Close()
		s, err := l.AcceptUnix()
		if err != nil {
			return
		}
		conn := control.NewConn(s, control.MaxRequest)
		defer conn.Close()
		hello := control.NewHello(ring.LayoutVersion)
		_, id, err := conn.AwaitHello(hello)
		if err == nil {
			err = conn.AcceptHello(id, hello)
		}
		if err == nil {
			_, err = conn.Receive()
		}
		if err == nil {
			answer(s)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return socket
}
