package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// sink accepts one connection and hands over the payloads of its frames.
func sink(t *testing.T) (address string, frames chan []byte) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	frames = make(chan []byte, 10)
	go func() {
		defer close(frames)
		conn, err := l.Accept()
		_ = l.Close()
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			var size [4]byte
			if _, err := io.ReadFull(conn, size[:]); err != nil {
				return
			}
			b := make([]byte, binary.BigEndian.Uint32(size[:]))
			if _, err := io.ReadFull(conn, b); err != nil {
				return
			}
			frames <- b
		}
	}()
	return l.Addr().String(), frames
}

func TestTheFeederSendsEveryFrameInOrder(t *testing.T) {
	address, frames := sink(t)
	f, err := newFeeder(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	began := f.clock.now()
	done := make(chan error, 1)
	go func() {
		first, err := f.full(t.Context(), 5000)
		if err == nil && first < began {
			err = errors.New("the first frame was sent before there was a feeder")
		}
		if err == nil {
			err = f.paced(t.Context(), 5050, 10_000)
		}
		done <- errors.Join(err, f.close())
	}()
	next := uint64(0)
	for b := range frames {
		seq, sent, ok := inspect(b)
		if !ok || seq != next || sent < began || sent > f.clock.now() {
			t.Fatalf("frame %d, sent at %v, %v; want %d", seq, sent, ok, next)
		}
		next++
	}
	if err := <-done; err != nil || next != 5050 {
		t.Errorf("%d frames, %v", next, err)
	}
}

func TestTheFeederEndsWhenItIsTold(t *testing.T) {
	address, frames := sink(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	f, err := newFeeder(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	because := errors.New("because")
	done := make(chan error, 1)
	go func() {
		_, err := f.full(ctx, 1<<40) // more than anybody takes
		done <- err
	}()
	<-frames
	cancel(because)
	if err := <-done; err != because {
		t.Errorf("error %v", err)
	}
	if err := f.paced(ctx, 1<<40, 10); err != because {
		t.Errorf("error %v", err)
	}
	_ = f.close()
	for range frames {
	}
}

func TestAFeederWithoutAnIngress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if _, err := newFeeder(t.Context(), l.Addr().String()); err == nil || !strings.Contains(err.Error(), "connect to the ingress") {
		t.Errorf("error %v", err)
	}
	address, frames := sink(t)
	f, err := newFeeder(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.conn.Close()
	if _, err := f.full(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "send to the ingress") {
		t.Errorf("error %v", err)
	}
	_ = f.close()
	for range frames {
	}
}
