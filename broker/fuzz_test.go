package broker

import (
	"encoding/json"
	"net"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/ring"
)

// FuzzSession sends arbitrary packets to a broker. Each gets one well-formed answer, and
// the connection, and the broker, go on.
func FuzzSession(f *testing.F) {
	for _, seed := range []string{
		`{"id":2,"op":"ping"}`, `{"id":2,"op":"create","body":{"name":"a","options":{"capacity":4096}}}`,
		`{"id":2,"op":"attach","body":{"topic":"a","kind":"publisher"}}`,
		`{"id":2,"op":"attach","body":{"topic":"a","kind":"member","group":"g","start":{"from":"earliest"}}}`,
		`{"id":2,"op":"attach","body":{"topic":"a","kind":"subscriber","policy":"evict","evict_after_ns":1}}`,
		`{"id":2,"op":"detach","body":{"attachment":1}}`, `{"id":2,"op":"remove","body":{"name":"a"}}`,
		`{"id":2,"op":"list","body":{"after":"\u0000","limit":-1}}`, `{"id":2,"op":"show","body":{"name":"a","after":"0.0.0"}}`,
		`{"id":2,"op":"deadletter","body":{"topic":"a","group":"g"}}`, "\x00", "{", `[]`,
	} {
		f.Add([]byte(seed))
	}
	s := start(f, Config{
		Defaults: TopicOptions{Capacity: 4096, Pages: "4KiB", Publishers: 2, Subscribers: 2, Groups: 1},
		Quotas:   Quotas{Limits: Limits{Topics: 50, Bytes: 16 << 20}}, GroupLinger: time.Millisecond,
	})
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) == 0 || len(packet) > 2*control.MaxRequest {
			return // an empty packet is the end of a connection
		}
		socket, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.Addr(), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		conn := control.NewConn(socket, control.MaxMessage)
		defer conn.Close()
		if _, err := conn.SayHello(control.NewHello(ring.LayoutVersion)); err != nil {
			t.Fatal(err)
		}
		for _, p := range [][]byte{packet, []byte(`{"id":7,"op":"ping"}`)} {
			if _, err := socket.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		answered := 0
		for last := false; !last; {
			p, err := conn.Receive()
			if err != nil {
				t.Fatalf("after %d answers: %v", answered, err)
			}
			p.Discard()
			m, err := control.DecodeMessage(p.Data)
			if err != nil || m.Body != nil && !json.Valid(m.Body) {
				t.Fatalf("answer %q: %v", p.Data, err)
			}
			if m.Event == "" {
				answered++
			}
			last = answered == 2
			if last && (m.ID != 7 || m.Error != nil) {
				t.Fatalf("ping was answered by %s", p.Data)
			}
		}
	})
}
