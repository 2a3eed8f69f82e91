package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/gateway/codec"
)

// benchFrames is how many frames a benchmark sends at once, as one stream.
const benchFrames = 1 << 14

func benchStream(b *testing.B, framing codec.Codec, size int) []byte {
	b.Helper()
	var stream []byte
	var err error
	for range benchFrames {
		if stream, err = framing.Append(stream, []byte(strings.Repeat("x", size))); err != nil {
			b.Fatal(err)
		}
	}
	return stream
}

// BenchmarkCut is the codec alone, over memory.
func BenchmarkCut(b *testing.B) {
	for _, name := range codec.Names() {
		framing, err := codec.Lookup(name)
		if err != nil {
			b.Fatal(err)
		}
		for _, size := range []int{16, 64, 1024} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				stream := benchStream(b, framing, size)
				stream = stream[:min(len(stream), DefaultBufferSize)]
				cutter := framing.NewCutter(size)
				dst := make([][]byte, 0, DefaultBatchFrames)
				frames := 0
				for frames < b.N {
					for held := stream; ; {
						cut, used, _, err := cutter.Cut(dst, held)
						if err != nil {
							b.Fatal(err)
						}
						frames, held = frames+len(cut), held[used:]
						if len(cut) < cap(cut) {
							break
						}
					}
					cutter = framing.NewCutter(size) // the torn frame at the end goes on in no next call
				}
				reportFrames(b, frames)
			})
		}
	}
}

func reportFrames(b *testing.B, frames int) {
	b.ReportMetric(float64(frames)/b.Elapsed().Seconds()/1e6, "Mframes/s")
}

// cpu is how much processor time somebody (unix.RUSAGE_SELF, unix.RUSAGE_THREAD) has used.
func cpu(b *testing.B, who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reportReceiver tells what a frame costs the receiving side in processor time, which says more than frames per second where the
// machine has other work: all that the process used since began, less what the sender used.
func reportReceiver(b *testing.B, began time.Duration, sender *atomic.Int64) {
	used := cpu(b, unix.RUSAGE_SELF) - began - time.Duration(sender.Load())
	b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/frame")
}

// pump sends the stream to addr until b.N frames are on their way, and tells what that cost in processor time.
func pump(b *testing.B, addr net.Addr, stream []byte, used *atomic.Int64) *sync.WaitGroup {
	b.Helper()
	nc, err := net.Dial("tcp", addr.String())
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		defer nc.Close()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		began := cpu(b, unix.RUSAGE_THREAD)
		defer func() { used.Store(int64(cpu(b, unix.RUSAGE_THREAD) - began)) }()
		for n := 0; n < b.N; n += benchFrames {
			part := stream[:min(benchFrames, b.N-n)*(len(stream)/benchFrames)]
			if _, err := nc.Write(part); err != nil {
				b.Error(err)
				return
			}
		}
	}()
	return &wg
}

// BenchmarkRawLoop reads a len32 stream from loopback into a large buffer and only finds where frames end: what an
// ingress can at best be.
func BenchmarkRawLoop(b *testing.B) {
	for _, size := range []int{16, 64, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			stream := benchStream(b, codec.Len32{}, size)
			b.ResetTimer()
			var sender atomic.Int64
			began := cpu(b, unix.RUSAGE_SELF)
			sent := pump(b, l.Addr(), stream, &sender)
			nc, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			buf := make([]byte, DefaultBufferSize)
			frames, held := 0, 0
			for frames < b.N {
				n, err := nc.Read(buf[held:])
				if err != nil {
					b.Fatal(err)
				}
				held += n
				at := 0
				for held-at >= len32Header {
					end := at + len32Header + int(binary.BigEndian.Uint32(buf[at:]))
					if end > held {
						break
					}
					at = end
					frames++
				}
				held = copy(buf, buf[at:held])
			}
			reportFrames(b, frames)
			sent.Wait()
			reportReceiver(b, began, &sender)
		})
	}
}

// BenchmarkIngress is the whole way from loopback into a sink that copies as a ring does.
func BenchmarkIngress(b *testing.B) {
	for _, name := range codec.Names() {
		framing, err := codec.Lookup(name)
		if err != nil {
			b.Fatal(err)
		}
		for _, size := range []int{16, 64, 1024} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) { benchIngress(b, framing, size) })
		}
	}
}

func benchIngress(b *testing.B, framing codec.Codec, size int) {
	s := newSink()
	s.want, s.done = b.N, make(chan struct{})
	in, err := NewIngress(b.Context(), Config{
		Listen: "127.0.0.1:0", Codec: framing.Name(), Lanes: 1, Logger: slog.New(slog.DiscardHandler),
		NewLane: func(context.Context) (Lane, error) { return s, nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	stream := benchStream(b, framing, size)
	go func() { served <- in.Serve(ctx) }()
	b.ResetTimer()
	var sender atomic.Int64
	began := cpu(b, unix.RUSAGE_SELF)
	sent := pump(b, in.Addr(), stream, &sender)
	<-s.done
	b.StopTimer()
	reportFrames(b, b.N)
	sent.Wait()
	reportReceiver(b, began, &sender)
	cancel()
	if err := <-served; err != nil {
		b.Fatal(err)
	}
	stats := in.Stats()
	b.ReportMetric(float64(stats.Reads)/float64(stats.Frames), "reads/frame")
}
