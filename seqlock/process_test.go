package seqlock

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/shm"
)

// Writers in processes of their own, killed while they write as fast as they can.

const processWords = 32 // long enough that most kills hit a half-written value

func init() {
	testutil.Register("latch-writer", func([]string) {
		l := NewLatch(childWords(LatchWords(processWords)))
		for {
			l.Store(value(processWords, l.Version()+1))
		}
	})
	testutil.Register("lock-writer", func(args []string) {
		words := childWords(1 + processWords)
		owner, err := strconv.ParseUint(args[0], 10, 16)
		if err != nil {
			panic(err)
		}
		l := NewLock(counterAt(&words[0]), words[1:])
		for k := l.Words()[0].Load() + 1; ; k++ {
			if !l.TryStore(uint16(owner), value(processWords, k)) {
				panic("somebody else holds the lock")
			}
		}
	})
}

// childWords maps the segment that the parent handed to this child.
func childWords(n int) []atomic.Uint64 {
	s, err := shm.Open(testutil.File(0), true)
	if err != nil {
		panic(err)
	}
	words, err := Words(s.Bytes())
	if err != nil {
		panic(err)
	}
	return words[:n]
}

// start runs a role on the segment, and returns when it has written.
func start(t *testing.T, s *shm.Segment, c *Counter, role string, args ...string) *testutil.Proc {
	t.Helper()
	before := c.Read()
	p := testutil.Launch(t, testutil.Child{Role: role, Args: args, Files: []*os.File{s.File()}})
	testutil.Eventually(t, role+" writes", func() bool { return c.Read()-before > 100 })
	return p
}

func TestLatchWriterProcessThatIsKilledBlocksNobody(t *testing.T) {
	const n = processWords
	s := mapping(t)
	readOnly, err := s.ReadOnlyFile()
	if err != nil {
		t.Fatal(err)
	}
	reader, err := shm.Open(readOnly, false) // in a mapping that cannot be written, as subscribers have it
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	words := wordsOf(t, reader, LatchWords(n))
	l := NewLatch(words)
	half := 0
	for range 10 {
		p := start(t, s, counterAt(&words[0]), "latch-writer")
		got := make([]uint64, n)
		for range 1000 {
			if v, ok := l.Load(got); ok && !slices.Equal(got, value(n, v)) {
				t.Fatalf("version %d is %v", v, got)
			}
		}
		p.Kill()
		v, ok := l.Load(got)
		if !ok || !slices.Equal(got, value(n, v)) {
			t.Fatalf("after the writer's death: %v, version %d is %v", ok, v, got)
		}
		if spare := l.half(v + 1); spare[0].Load() != spare[n-1].Load() {
			half++
		}
	}
	t.Logf("%d of 10 writers were killed in the middle of a value", half)
}

func TestLockWriterProcessThatIsKilledIsRecovered(t *testing.T) {
	const n = processWords
	s := mapping(t)
	words := wordsOf(t, s, 1+n)
	l := NewLock(counterAt(&words[0]), words[1:])
	held := 0
	for round := range 10 {
		owner := uint16(round + 1)
		start(t, s, counterAt(&words[0]), "lock-writer", fmt.Sprint(owner)).Kill()
		got := make([]uint64, n)
		who, locked := l.Holder()
		if _, ok := l.Load(got); ok == locked {
			t.Fatalf("held: %v, and a load says %v", locked, ok)
		}
		if locked {
			held++
			if who != owner {
				t.Fatalf("held by %d, but it was %d that died", who, owner)
			}
			if !l.Reset(who, 0, value(n, 1)) {
				t.Fatal("the repair was refused")
			}
		}
		if _, ok := l.Load(got); !ok || !slices.Equal(got, value(n, got[0])) {
			t.Fatalf("in the end: %v, %v", ok, got)
		}
	}
	t.Logf("%d of 10 writers were killed while they held the lock", held)
}
