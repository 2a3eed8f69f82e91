package ring

import (
	"errors"
	"testing"
)

// TestMembersSpareWhatIsForDeadLetters: a range that was handed out too often is not taken
// over, until it is offered again because nobody could bury it. What stands behind it is
// not spared.
func TestMembersSpareWhatIsForDeadLetters(t *testing.T) {
	eachStart(t, func(t *testing.T, start Position) {
		r, p, _ := groupOf(t, start, 1)
		id, err := r.AdmitMember(0, 3)
		must(t, err)
		m, err := r.Member(0, id, SubscriberOptions{MaxRedeliveries: 2})
		must(t, err)
		must(t, p.TryPublish([]byte("poison")))
		must(t, p.TryPublish([]byte("good")))
		refuse := errors.New("refused")
		refused := func(redelivered uint16) {
			t.Helper()
			n, err := m.Poll(2, func(f Frame) error {
				if string(f.Payload) != "poison" || f.Redelivered != redelivered {
					t.Errorf("%q, redelivered %d times, want poison, %d", f.Payload, f.Redelivered, redelivered)
				}
				return refuse
			})
			if n != 0 || err != refuse {
				t.Fatal(n, err)
			}
		}
		refused(0)
		refused(1)
		refused(2)
		for range 2 {
			if got := drain(t, m); len(got) != 0 || m.Ready() {
				t.Fatalf("%v, ready: %v", got, m.Ready())
			}
			if n, err := r.Reoffer(0, 3); n != 0 || err != nil { // not above that
				t.Fatal(n, err)
			}
			if n, err := r.Reoffer(0, 2); n != 1 || err != nil || !m.Ready() {
				t.Fatal(n, err, m.Ready())
			}
			refused(2)
		}
		n, err := r.DeadLetters(0, 2, func(Frame) error { return nil })
		if n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if got := drain(t, m); len(got) != 1 || got[0].payload != "good" || got[0].redelivered != 1 {
			t.Errorf("%v", got)
		}
		if n, err := r.Reoffer(0, 0); n != 0 || err != nil {
			t.Error(n, err)
		}
		if _, err := r.Reoffer(1, 0); !errors.Is(err, ErrSlot) {
			t.Errorf("a group that is not open: %v", err)
		}
	})
}
