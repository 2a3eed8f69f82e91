package seqlock

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/shm"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// memory is a place to run a suite in: the heap, which the race detector watches, or a real mapping, which it does not.
type memory struct {
	name  string
	words []atomic.Uint64
}

// counter returns a Counter in the memory's first word.
func (m memory) counter() *Counter { return counterAt(&m.words[0]) }

// memories returns n zeroed words in every kind of memory there is.
func memories(t *testing.T, n int) []memory {
	t.Helper()
	return []memory{{"heap", make([]atomic.Uint64, n)}, {"mapping", wordsOf(t, mapping(t), n)}}
}

// mapping returns a small segment.
func mapping(t *testing.T) *shm.Segment {
	t.Helper()
	s, err := shm.Create(shm.Options{Name: "seqlock-test", Size: 4096, Pages: shm.Pages4KiB})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// wordsOf returns the first n words of a segment.
func wordsOf(t testing.TB, s *shm.Segment, n int) []atomic.Uint64 {
	t.Helper()
	words, err := Words(s.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return words[:n]
}

func yield() { runtime.Gosched() }

func panicText(f func()) (msg string) {
	defer func() { msg = fmt.Sprint(recover()) }()
	f()
	return ""
}

func TestWords(t *testing.T) {
	b := make([]byte, 64) // a size class that is a multiple of 8
	for n, want := range map[int]int{0: 0, 7: 0, 8: 1, 15: 1, 16: 2, 64: 8} {
		w, err := Words(b[:n])
		if err != nil || len(w) != want {
			t.Errorf("%d bytes: %d words, %v; want %d", n, len(w), err, want)
		}
	}
	w, _ := Words(b)
	w[3].Store(0x1122334455667788)
	if got := binary.NativeEndian.Uint64(b[24:]); got != 0x1122334455667788 {
		t.Errorf("byte view has %#x", got)
	}
	for off := 1; off < 8; off++ {
		_, err := Words(b[off:])
		if want := fmt.Sprintf("starts %d bytes past a multiple of 8", off); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("offset %d: %v", off, err)
		}
	}
}

// FuzzHostileWords reads and repairs values in memory that holds anything: everything ends, and whoever writes afterwards is
// read correctly.
func FuzzHostileWords(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00"), uint16(1))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), uint16(0xffff))
	f.Fuzz(func(t *testing.T, b []byte, owner uint16) {
		const n = 3
		words := make([]atomic.Uint64, LatchWords(n))
		for i := 0; i < len(words) && 8*i+8 <= len(b); i++ {
			words[i].Store(binary.LittleEndian.Uint64(b[8*i:]))
		}
		got := make([]uint64, n)
		lock, latch := NewLock(counterAt(&words[0]), words[1:1+n]), NewLatch(words)
		if _, ok := lock.Load(got); ok != Even(words[0].Load()) {
			t.Fatalf("lock at %#x: load says %v", words[0].Load(), ok)
		}
		if who, locked := lock.Holder(); locked && !lock.Reset(who, owner, got) {
			t.Fatal("a held lock cannot be reset for its holder")
		}
		if !lock.TryStore(owner, []uint64{1, 2, 3}) {
			t.Fatal("a free lock refuses")
		}
		if _, ok := lock.Load(got); !ok || got[0] != 1 || got[1] != 2 || got[2] != 3 {
			t.Fatalf("lock holds %v, %v", got, ok)
		}
		if _, ok := latch.Load(got); !ok {
			t.Fatal("latch at rest does not answer")
		}
		latch.Store([]uint64{4, 5, 6})
		if _, ok := latch.Load(got); !ok || got[0] != 4 || got[1] != 5 || got[2] != 6 {
			t.Fatalf("latch holds %v, %v", got, ok)
		}
	})
}
