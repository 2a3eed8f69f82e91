package gateway

import (
	"errors"
	"strings"
	"testing"
)

// end makes the topic one that has gone: nobody can publish there any more.
func (tp *topic) end(err error) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.fail, tp.over = err, err
}

func TestATopicThatHasGoneEndsTheIngressWithoutAFrame(t *testing.T) {
	gone := errors.New("the topic was removed")
	for name, listen := range map[string]string{"streams": "127.0.0.1:0", "datagrams": "udp://127.0.0.1:0"} {
		t.Run(name, func(t *testing.T) {
			tp := newTopic(100)
			r := start(t, tp, func(c *Config) { c.Listen = listen })
			if name == "streams" {
				nc := r.dial()
				send(t, nc, len32("one"))
				tp.awaitFrames(t, 1)
				defer wantClosed(t, nc)
			}
			tp.end(gone)
			if err := r.wait(); !errors.Is(err, gone) || !strings.Contains(err.Error(), "gateway: publishing failed: the topic was removed") {
				t.Errorf("Serve: %v", err)
			}
			if s := r.Stats(); s.GivenUp != 0 {
				t.Errorf("%d frames were lost", s.GivenUp)
			}
		})
	}
}

// TestNothingIsReadForATopicThatHasGone has the frame come before the ingress has noticed, or could have.
func TestNothingIsReadForATopicThatHasGone(t *testing.T) {
	gone := errors.New("the topic was removed")
	tp := newTopic(100)
	r := newRig(t, tp, nil)
	send(t, r.dial(), len32("lost"))
	tp.end(gone)
	r.serve()
	if err := r.wait(); !errors.Is(err, gone) {
		t.Errorf("Serve: %v", err)
	}
	if s := r.Stats(); s.GivenUp != 0 || s.Received != 0 {
		t.Errorf("%d bytes were read, %d frames lost", s.Received, s.GivenUp)
	}
}
