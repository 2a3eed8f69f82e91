package outbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// covered hides that a connection is a bare socket, as TLS does.
type covered struct{ net.Conn }

// rig is an outbox, and the peer's end of its connection.
type rig struct {
	t      *testing.T
	shared *Shared
	tape   *Tape
	out    *Outbox
	peer   *net.TCPConn
	ended  atomic.Int32
}

func newRig(t *testing.T, bare bool, shared *Shared) *rig {
	t.Helper()
	ours, peer := testutil.Conns(t)
	check(t, ours.SetWriteBuffer(16<<10)) // so that less is enough to fill it
	var conn net.Conn = ours
	if !bare {
		conn = covered{ours}
	}
	if shared.OnSlow == nil {
		shared.OnSlow = func(*Outbox, Gap, error) {}
	}
	r := &rig{t: t, shared: shared, tape: NewTape(&shared.Blocks), peer: peer}
	var err error
	r.out, err = New(shared, conn, func() { r.ended.Add(1) })
	check(t, err)
	t.Cleanup(func() {
		r.tape.Close()
		r.out.Close()
		_ = conn.Close() // by the test, or now
		_ = peer.Close()
		shared.Join()
		if live, queued, waiting := shared.Blocks.Live(), shared.Queued.Load(), shared.Waiting.Load(); live != 0 || queued != 0 || waiting != 0 || shared.Torn() != 0 {
			t.Errorf("left: %d bytes of blocks, %d queued, %d waiting, %d torn", live, queued, waiting, shared.Torn())
		}
	})
	return r
}

// frame encodes a frame: its length, its number, and filling.
func (r *rig) frame(n, size int) Segment {
	r.t.Helper()
	s, err := r.tape.Append(size+8, func(dst []byte) ([]byte, error) {
		dst = binary.BigEndian.AppendUint32(dst, uint32(size))
		dst = binary.BigEndian.AppendUint32(dst, uint32(n))
		return append(dst, bytes.Repeat([]byte{byte(n)}, size)...), nil
	})
	check(r.t, err)
	return s
}

// send sends a frame by itself.
func (r *rig) send(n, size int) bool {
	var b Batch
	b.Add(r.frame(n, size), 1)
	defer b.Reset()
	return r.out.Send(&b, 0)
}

// TestEveryWayOfSendingKeepsTheOrder sends by all methods in any order, and compares what the peer reads.
func TestEveryWayOfSendingKeepsTheOrder(t *testing.T) {
	for _, bare := range []bool{true, false} {
		t.Run(fmt.Sprintf("bare %t", bare), func(t *testing.T) {
			r := newRig(t, bare, &Shared{MaxLag: 64 << 20})
			rng := rand.New(rand.NewPCG(2, uint64(testutil.Seed(t))))
			var want bytes.Buffer
			got := make(chan []byte, 1)
			go func() {
				all, _ := io.ReadAll(r.peer)
				got <- all
			}()
			for n := range 2000 {
				size := rng.IntN(300)
				if rng.IntN(100) == 0 {
					size = rng.IntN(2 * blockSize)
				}
				switch rng.IntN(4) {
				case 0:
					text := []byte(strings.Repeat("-", size))
					want.Write(text)
					r.out.SendBytes(text)
					clear(text) // the outbox has no right to it any more
				case 1:
					var b Batch
					frames, skip := 1+rng.IntN(5), 0
					before := rng.IntN(frames+4) - 3 // of the frames; often none, and at times all
					for k := range frames {
						s := r.frame(n+k, size)
						if k < before {
							skip += s.Len()
						} else {
							want.Write(s.Bytes())
						}
						if !b.Add(s, 1) {
							t.Fatal("a batch of five is full")
						}
					}
					r.out.Flush() // what was queued comes before
					if !r.out.Send(&b, skip) {
						t.Fatal(r.out.Err())
					}
					b.Reset()
				default:
					s := r.frame(n, size)
					want.Write(s.Bytes())
					r.out.Queue(s)
					s.Drop()
					if rng.IntN(3) == 0 {
						r.out.Flush()
					}
				}
			}
			r.out.Flush()
			r.out.CloseWhenSent()
			testutil.Eventually(t, "all is sent", func() bool { return errors.Is(r.out.Err(), io.EOF) })
			check(t, r.out.Conn().Close())
			if all := <-got; !bytes.Equal(all, want.Bytes()) {
				t.Errorf("%d bytes came, of %d, the first %d of them right", len(all), want.Len(), common(all, want.Bytes()))
			}
			if n := r.ended.Load(); n != 1 {
				t.Errorf("onEnd was called %d times", n)
			}
		})
	}
}

func common(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// TestWhoDoesNotReadIsSkippedForward reads nothing at first: then come whole frames in order, and gaps that say truly what is missing.
func TestWhoDoesNotReadIsSkippedForward(t *testing.T) {
	const lag = 64 << 10
	for _, size := range []int{100, smallRest + 500, 40_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			shared := &Shared{MaxLag: lag, Mark: func(dst []byte, g Gap) []byte {
				dst = binary.BigEndian.AppendUint32(dst, 0xffffffff)
				return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, g.Frames), g.Bytes)
			}}
			r := newRig(t, true, shared)
			frames := 1000 + 16<<20/size/10 // more than the sockets hold
			for n := range frames {
				if !r.send(n, size) {
					t.Fatal(r.out.Err())
				}
				if live := shared.Blocks.Live(); live > 8*lag+4*int64(size) {
					t.Fatalf("%d bytes of blocks after %d frames", live, n)
				}
			}
			if _, skips := r.out.Lag(); skips == 0 {
				t.Fatal("it was never skipped")
			}
			r.out.CloseWhenSent()
			head := make([]byte, 4)
			for next := 0; next < frames; {
				_, err := io.ReadFull(r.peer, head)
				if err != nil {
					t.Fatalf("%d of %d: %v", next, frames, err)
				}
				if length := binary.BigEndian.Uint32(head); length != 0xffffffff {
					rest := make([]byte, 4+length)
					if _, err := io.ReadFull(r.peer, rest); err != nil || int(length) != size || int(binary.BigEndian.Uint32(rest)) != next || rest[len(rest)-1] != byte(next) {
						t.Fatalf("a frame of %d bytes, number %d, want %d; %v", length, binary.BigEndian.Uint32(rest), next, err)
					}
					next++
					continue
				}
				gap := make([]byte, 16)
				_, err = io.ReadFull(r.peer, gap)
				check(t, err)
				missing, size64 := binary.BigEndian.Uint64(gap), binary.BigEndian.Uint64(gap[8:])
				if missing == 0 || size64 != missing*uint64(size+8) {
					t.Fatalf("a gap of %d frames and %d bytes at %d", missing, size64, next)
				}
				next += int(missing)
			}
		})
	}
}

func TestWhoDoesNotReadIsClosed(t *testing.T) {
	var told error
	shared := &Shared{MaxLag: 64 << 10, OnSlow: func(_ *Outbox, g Gap, err error) { told = err }}
	r := newRig(t, true, shared)
	for n := 0; r.send(n, 1000); n++ {
		if n > 100_000 {
			t.Fatal("it takes everything")
		}
	}
	if !errors.Is(r.out.Err(), ErrSlow) || !errors.Is(told, ErrSlow) || r.ended.Load() != 1 {
		t.Errorf("%v, %v, %d", r.out.Err(), told, r.ended.Load())
	}
	r.out.SendBytes([]byte("more")) // nothing happens any more
	if r.send(0, 1) || r.out.Flush() {
		t.Error("it sends on")
	}
}

func TestWriteTimeout(t *testing.T) {
	for _, bare := range []bool{true, false} {
		t.Run(fmt.Sprintf("bare %t", bare), func(t *testing.T) {
			r := newRig(t, bare, &Shared{MaxLag: 64 << 20, WriteTimeout: 50 * time.Millisecond})
			for n := range 300 {
				r.send(n, 60_000)
			}
			testutil.Eventually(t, "it ends", func() bool { return r.out.Err() != nil })
			if err := r.out.Err(); !errors.Is(err, ErrWriteTimeout) {
				t.Error(err)
			}
		})
	}
}

// TestQueueTellsOneCallerToFlush: of those who queue before a flush, the first is to flush.
func TestQueueTellsOneCallerToFlush(t *testing.T) {
	r := newRig(t, true, &Shared{MaxLag: 1 << 20})
	for range 3 {
		s := r.frame(1, 10)
		if first, second := r.out.Queue(s), r.out.Queue(s); !first || second {
			t.Errorf("%t, %t", first, second)
		}
		s.Drop()
		r.out.Flush()
	}
}

// TestPeerThatHasGone: the end of the connection is the outbox's.
func TestPeerThatHasGone(t *testing.T) {
	r := newRig(t, true, &Shared{MaxLag: 64 << 20})
	check(t, r.peer.SetLinger(0))
	check(t, r.peer.Close())
	testutil.Eventually(t, "it ends", func() bool { return !r.send(0, 1000) })
	if r.out.Err() == nil || r.ended.Load() != 1 {
		t.Errorf("%v, %d", r.out.Err(), r.ended.Load())
	}
}

func TestABlockIsNotDroppedTwice(t *testing.T) {
	var blocks Blocks
	b := blocks.get(1)
	b.drop()
	defer func() {
		if recover() == nil {
			t.Error("nobody noticed")
		}
	}()
	b.drop()
}

// TestRunsJoinWhatStandsSideBySide: frames of one tape are one vector until the block ends.
func TestRunsJoinWhatStandsSideBySide(t *testing.T) {
	r := newRig(t, true, &Shared{MaxLag: 1 << 20})
	var run Run
	var batch Batch
	for n := range 10 {
		if !run.Add(r.frame(n, 10)) {
			t.Fatal("it stands elsewhere")
		}
	}
	large := r.frame(10, blockSize)
	if run.Add(large) {
		t.Fatal("it stands beside")
	}
	s, frames, ok := run.Take()
	if !ok || frames != 10 || s.Len() != 10*18 {
		t.Errorf("%d frames, %d bytes, %t", frames, s.Len(), ok)
	}
	batch.Add(s, frames)
	batch.Add(large, 1)
	if batch.Frames() != 11 || batch.Bytes() != 10*18+blockSize+8 || len(batch.iov) != 2 {
		t.Errorf("%d frames, %d bytes, %d vectors", batch.Frames(), batch.Bytes(), len(batch.iov))
	}
	batch.Reset()
	if _, _, ok := run.Take(); ok {
		t.Error("it has something")
	}
}
