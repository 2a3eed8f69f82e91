package broker

import (
	"testing"

	"github.com/hugebus/hugebus/internal/control"
)

// TestProcessOfAClientThatHoldsNothing: a pidfd is held for who has a slot to lose, and no longer.
func TestProcessOfAClientThatHoldsNothing(t *testing.T) {
	s := start(t, kept(t))
	p, secret := s.secretive(t)
	p.create("orders", small)
	holds := func() bool {
		h := s.holderOf(secret)
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.process != nil
	}
	v, _ := p.subscriber("orders")
	identified := holds()
	if !identified {
		t.Log("this kernel has no SO_PEERPIDFD")
	}
	p.must(control.OpDetach, control.DetachRequest{Attachment: v.Attachment}, nil)
	if holds() {
		t.Error("a client that holds nothing has a pidfd")
	}
	if p.subscriber("orders"); holds() != identified {
		t.Error("it has none when it holds something again")
	}
}
