package ring

import (
	"fmt"
	"reflect"
	"testing"
)

func TestCheckCursors(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		p := publisher(t, r, 0)
		s := reliable(t, r, 0)
		lossy(t, r, 1)
		reliable(t, r, 2)
		must(t, r.OpenGroup(1, Latest(), never))
		m := member(t, r, 1, 3)
		for range 300 {
			must(t, p.TryPublish(nil))
			for _, reader := range []poller{s, m} {
				if got := drain(t, reader); len(got) != 1 {
					t.Fatal(len(got))
				}
			}
			must(t, r.ReleaseSubscriber(2))
			reliable(t, r, 2)
			if bad := r.CheckCursors(); len(bad) != 0 {
				t.Fatalf("a correct ring: %+v", bad)
			}
		}
		tail := r.Tail()
		r.subscribers[1].cursor.Store(77) // who does not gate may write what it likes
		for _, c := range []struct {
			cursor Position
			why    string
		}{
			{tail, ""}, {tail - 4096, ""}, {tail + 64, "ahead of tail"}, {tail + 1<<62, "ahead of tail"},
			{tail - 4096 - 64, "lapped although it gates"}, {tail - 1<<62, "lapped although it gates"}, {tail - 8, "not a multiple of the cell size"},
		} {
			r.subscribers[0].cursor.Store(uint64(c.cursor))
			var want []Violation
			if c.why != "" {
				want = []Violation{{Slot: 0, Group: -1, Value: c.cursor, Why: c.why}}
			}
			if got := r.CheckCursors(); !reflect.DeepEqual(got, want) {
				t.Errorf("cursor %d: %+v, want %+v", c.cursor, got, want)
			}
			r.subscribers[0].cursor.Store(uint64(tail))

			if c.why == "not a multiple of the cell size" {
				continue // the low bits of a group's head are the member
			}
			if want != nil {
				want = []Violation{{Slot: -1, Group: 1, Value: c.cursor, Why: c.why}}
			}
			r.groups[1].head.Store(uint64(c.cursor) | 63)
			if got := r.CheckCursors(); !reflect.DeepEqual(got, want) {
				t.Errorf("head %d: %+v, want %+v", c.cursor, got, want)
			}
			r.groups[1].head.Store(uint64(tail))
		}
	})
}

func TestStates(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r := heap(t, small(start))
		for _, err := range []error{
			second(r.PublisherState(-1)), second(r.PublisherState(4)), second(r.SubscriberState(-1)), second(r.SubscriberState(8)),
			second(r.GroupState(-1)), second(r.GroupState(2)),
		} {
			wantErr(t, err, ErrSlot)
		}
		p := publisher(t, r, 1)
		s := reliable(t, r, 2)
		must(t, r.OpenGroup(0, Latest(), never))
		m := member(t, r, 0, 3)
		must(t, p.TryPublish(nil))
		if n, err := p.TryPublishBatch([][]byte{nil, nil}); n != 2 {
			t.Fatal(err)
		}
		c, err := p.Claim(100)
		must(t, err)

		ps, _ := r.PublisherState(1)
		if want := (PublisherState{Active: true, Frames: 3, Claimed: true, Claim: start + 192, Bytes: 128, Limit: start + 4096}); ps != want {
			t.Errorf("%+v, want %+v", ps, want)
		}
		must(t, c.Abort())
		if ps, _ = r.PublisherState(1); ps.Claimed || ps.Frames != 3 {
			t.Errorf("after an abort: %+v", ps)
		}
		if ps, _ = r.PublisherState(0); ps.Active || ps.Claimed {
			t.Errorf("of a free slot: %+v", ps)
		}

		if got, _ := poll(t, s, 2); len(got) != 2 {
			t.Fatal(len(got))
		}
		s.Missed()
		ss, _ := r.SubscriberState(2)
		if want := (SubscriberState{Policy: Reliable, Taken: true, Joined: true, Position: start + 128, Lag: 192, Frames: 2, Missed: 1}); ss != want {
			t.Errorf("%+v, want %+v", ss, want)
		}

		if got, _ := poll(t, m, 2); len(got) != 2 {
			t.Fatal(len(got))
		}
		m.Missed()
		// An idle member is where its group is.
		ss, _ = r.SubscriberState(3)
		if want := (SubscriberState{Policy: GroupMember, Taken: true, Joined: true, Position: start + 128, Lag: 192, Frames: 2, Missed: 1}); ss != want {
			t.Errorf("of a member: %+v, want %+v", ss, want)
		}
		_, err = m.Poll(1, func(Frame) error {
			ss, _ := r.SubscriberState(3)
			if ss.Position != start+128 {
				t.Errorf("of a member at work: %+v", ss)
			}
			gs, _ := r.GroupState(0)
			want := GroupState{Open: true, Head: start + 192, Lag: 192, Members: []MemberState{
				{Member: 0, Slot: 3, Holding: true, From: start + 128, To: start + 192},
			}}
			if !reflect.DeepEqual(gs, want) {
				t.Errorf("of a group at work: %+v, want %+v", gs, want)
			}
			return nil
		})
		must(t, err)
		if gs, _ := r.GroupState(1); gs.Open {
			t.Errorf("%+v", gs)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestState(t *testing.T) {
	m := heapMemory(t, small(0))
	r, err := Format(m, small(0))
	must(t, err)
	other, err := Attach(m)
	must(t, err)
	if s, err := other.State(); err != nil || s != (State{}) {
		t.Errorf("at first: %+v, %v", s, err)
	}
	for i := range uint64(5) {
		want := State{Epoch: i, Publishers: i + 1, Subscribers: i + 2, Groups: i + 3, Repairs: i + 4, SkippedBytes: 1<<64 - 1 - i, Removed: i%2 == 1}
		r.SetState(want)
		if s, err := other.State(); err != nil || s != want {
			t.Errorf("%+v, %v, want %+v", s, err, want)
		}
	}
}

// TestSlots: every slot number is checked, and so is the order of admitting, using and freeing.
func TestSlots(t *testing.T) {
	r := heap(t, small(0))
	for _, i := range []int{-1, 4, 1 << 40} {
		wantErr(t, r.AdmitPublisher(i), ErrSlot)
		wantErr(t, r.CondemnPublisher(i), ErrSlot)
		wantErr(t, second(r.RepairPublisher(i)), ErrSlot)
		wantErr(t, second(r.Publisher(i, PublisherOptions{})), ErrSlot)
	}
	for _, i := range []int{-1, 8, 1 << 40} {
		wantErr(t, r.AdmitSubscriber(i, SubscriberConfig{Policy: Lossy}), ErrSlot)
		wantErr(t, r.ReleaseSubscriber(i), ErrSlot)
		wantErr(t, second(r.Subscriber(i, SubscriberOptions{})), ErrSlot)
	}
	wantErr(t, second(r.Publisher(0, PublisherOptions{})), ErrSlot)
	wantErr(t, second(r.Subscriber(0, SubscriberOptions{})), ErrSlot)
	wantErr(t, r.CondemnPublisher(0), ErrSlot)
	must(t, r.AdmitPublisher(0))
	wantErr(t, r.AdmitPublisher(0), ErrSlot)
	wantErr(t, second(r.RepairPublisher(0)), ErrSlot)
	must(t, r.CondemnPublisher(0))
	wantErr(t, r.AdmitPublisher(0), ErrSlot)
	wantErr(t, second(r.Publisher(0, PublisherOptions{})), ErrSlot)
	must(t, second(r.RepairPublisher(0)))
	must(t, r.AdmitPublisher(0))

	must(t, r.AdmitSubscriber(0, SubscriberConfig{Policy: Lossy}))
	wantErr(t, r.AdmitSubscriber(0, SubscriberConfig{Policy: Lossy}), ErrSlot)
	must(t, r.ReleaseSubscriber(0))
	must(t, r.AdmitSubscriber(0, SubscriberConfig{Policy: Lossy}))
	r.subscribers[0].policy.Store(9)
	if err := second(r.Subscriber(0, SubscriberOptions{})); err == nil || err.Error() != fmt.Sprintf("%v: subscriber slot 0 has policy policy(9)", ErrSlot) {
		t.Error(err)
	}
	must(t, r.OpenGroup(0, Latest(), never))
	member(t, r, 0, 5)
	wantErr(t, second(r.Subscriber(5, SubscriberOptions{})), ErrSlot)
}

func TestWakeAlwaysRings(t *testing.T) {
	r := heap(t, small(0))
	subs, pubs := &counter{}, &counter{}
	r.SubscriberSleepers().Store(5)
	r.PublisherSleepers().Store(6)
	must(t, r.WakeSubscribers(subs))
	must(t, r.WakePublishers(pubs))
	must(t, r.WakePublishers(pubs))
	if subs.n != 1 || pubs.n != 2 || r.SubscriberSleepers().Load() != 0 || r.PublisherSleepers().Load() != 0 {
		t.Errorf("%d and %d rings, words %b and %b", subs.n, pubs.n, r.SubscriberSleepers().Load(), r.PublisherSleepers().Load())
	}
}
