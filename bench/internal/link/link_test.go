package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/bench/internal/server"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// pair opens both ends of a link; they are closed at the end of the test.
func pair(t *testing.T, s Spec) (front, back Link) {
	t.Helper()
	s.Dir = t.TempDir()
	opened := make(chan error, 1)
	go func() {
		var err error
		back, err = Open(s, Back)
		opened <- err
	}()
	front, err := Open(s, Front)
	if err := errors.Join(err, <-opened); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(front.Close(), back.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return front, back
}

// serve runs a server for the test and returns its address.
func serve(t *testing.T, kind string) string {
	t.Helper()
	input, stop := io.Pipe()
	lines, output := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(context.Background(), kind, t.TempDir(), input, output) }()
	t.Cleanup(func() {
		_ = stop.Close()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	})
	buffer := make([]byte, 1000)
	n, err := lines.Read(buffer)
	address, ok := strings.CutPrefix(strings.TrimSpace(string(buffer[:n])), "ready ")
	if err != nil || !ok {
		t.Fatalf("%s said %q, %v", kind, buffer[:n], err)
	}
	return address
}

// exchange sends payloads both ways, some at once, and checks them.
func exchange(t *testing.T, s Spec) {
	front, back := pair(t, s)
	for i, way := range []struct{ from, to Link }{{front, back}, {back, front}, {front, back}} {
		var want, got []string
		sent := make(chan error, 1)
		for n := range 7 {
			want = append(want, fmt.Sprintf("%0*d", s.Size, 100*i+n))
		}
		go func() {
			var err error
			for _, p := range want {
				err = errors.Join(err, way.from.Send([]byte(p)))
			}
			sent <- errors.Join(err, way.from.Flush())
		}()
		for len(got) < len(want) {
			if err := way.to.Receive(func(b []byte) error {
				got = append(got, string(b))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("direction %d: got %d payloads %.200q, want %.200q", i, len(got), got, want)
		}
	}
}

func TestEveryLinkCarriesPayloadsInOrderBothWays(t *testing.T) {
	for _, system := range []string{Pipe, Unix, SeqPacket, TCP} {
		for _, size := range []int{8, 48, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", system, size), func(t *testing.T) { exchange(t, Spec{System: system, Size: size}) })
		}
	}
}

func TestNATSCarriesPayloads(t *testing.T) {
	address := serve(t, server.NATS)
	for _, size := range []int{8, 100_000} {
		exchange(t, Spec{System: NATS, Size: size, Server: address})
	}
}

func TestRedisCarriesPayloads(t *testing.T) {
	if _, err := server.RedisProgram(); err != nil {
		t.Skip(err)
	}
	address := serve(t, server.Redis)
	for _, size := range []int{8, 100_000} {
		exchange(t, Spec{System: Redis, Size: size, Server: address})
	}
}

func TestHandlersErrorEndsReceive(t *testing.T) {
	for _, system := range []string{Pipe, Unix, SeqPacket} {
		front, back := pair(t, Spec{System: system, Size: 8})
		if err := errors.Join(front.Send([]byte("12345678")), front.Flush()); err != nil {
			t.Fatal(err)
		}
		want := errors.New("changed on its way")
		if err := back.Receive(func([]byte) error { return want }); !errors.Is(err, want) {
			t.Errorf("%s: %v", system, err)
		}
	}
}

func TestUnknownSystemIsNamed(t *testing.T) {
	if _, err := Open(Spec{System: "pigeon"}, Front); err == nil || !strings.Contains(err.Error(), `unknown system "pigeon"`) {
		t.Error(err)
	}
}

// parts is a reader that gives a few bytes at a time.
type parts struct {
	b    []byte
	each int
}

func (p *parts) Read(into []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(into[:min(len(into), p.each)], p.b)
	p.b = p.b[n:]
	return n, nil
}

func TestStreamsAreCutWhereverReadsEnd(t *testing.T) {
	const size, count = 11, 20
	var wire strings.Builder
	w := newStream(nil, &wire, size, nil)
	for i := range count {
		if err := w.Send(fmt.Appendf(nil, "payload %3d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for each := 1; each < 40; each++ {
		r := newStream(&parts{[]byte(wire.String()), each}, nil, size, nil)
		n := 0
		for n < count {
			if err := r.Receive(func(b []byte) error {
				if want := fmt.Sprintf("payload %3d", n); string(b) != want {
					return fmt.Errorf("got %q instead of %q", b, want)
				}
				n++
				return nil
			}); err != nil {
				t.Fatalf("reads of %d bytes: %v", each, err)
			}
		}
		if err := r.Receive(func([]byte) error { return nil }); !errors.Is(err, errClosed) {
			t.Errorf("at the end: %v", err)
		}
	}
}

func TestStreamRefusesALengthThatCannotBe(t *testing.T) {
	r := newStream(strings.NewReader("\xff\xff\xff\xff12345678"), nil, 8, nil)
	if err := r.Receive(func([]byte) error { return nil }); err == nil || !strings.Contains(err.Error(), "4294967295 bytes") {
		t.Error(err)
	}
}
