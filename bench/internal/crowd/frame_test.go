package crowd

import (
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestFrameComesBackAsItWasSealed(t *testing.T) {
	for _, size := range []int{MinPayload, 25, 64, 1000} {
		for _, want := range []frame{{}, {due: 12345678901, seq: 7, conn: 9}, {due: 1, seq: 1 << 40, conn: 1<<32 - 1, end: true}} {
			b := make([]byte, size)
			fill(b)
			seal(b, want)
			got, err := open(b, size)
			if err != nil || got != want {
				t.Errorf("%d bytes: %+v, %v, want %+v", size, got, err, want)
			}
		}
	}
}

func TestEveryChangedByteIsNoticed(t *testing.T) {
	b := make([]byte, 64)
	fill(b)
	seal(b, frame{due: 5, seq: 6, conn: 7})
	for i := range b {
		changed := slices.Clone(b)
		changed[i] ^= 1
		if _, err := open(changed, len(b)); err == nil || !strings.Contains(err.Error(), "arrived changed") {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	if _, err := open(b[:63], 64); err == nil || !strings.Contains(err.Error(), "63 bytes instead of 64") {
		t.Errorf("a short payload: %v", err)
	}
}

func TestSequenceNoticesWhatIsLostTwiceOrLate(t *testing.T) {
	for name, seqs := range map[string][]uint64{"lost": {0, 2}, "twice": {0, 1, 1}, "swapped": {0, 2, 1}, "late start": {1}} {
		var s sequence
		var err error
		for _, n := range seqs {
			if err == nil {
				err = s.check(frame{seq: n})
			}
		}
		if err == nil {
			t.Errorf("%s: %v is taken", name, seqs)
		}
	}
	s := sequence{next: 3}
	if err := s.check(frame{seq: 3, end: true}); err != nil || s.next != 3 {
		t.Errorf("the end: %v, next %d", err, s.next)
	}
	if err := s.check(frame{seq: 2, end: true}); err == nil {
		t.Error("an end behind too few frames is taken")
	}
}
