package crowd

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/internal/sys"
)

const testSize = 40

var wires = map[string]*wire{"bus": busWire(testSize), "nats": natsWire(testSize), "redis": redisWire(testSize)}

// onWire is a payload as it stands in the stream.
func onWire(w *wire, f frame) []byte {
	b := make([]byte, testSize)
	fill(b)
	seal(b, f)
	return bytes.Join([][]byte{w.before, b, w.after}, nil)
}

// oneClient is a reader with a single connection, and the server's end of that.
func oneClient(t *testing.T, w *wire) (*clients, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	plain := *w
	plain.subscribe = func(net.Conn) error { return nil }
	began := time.Now()
	c, err := openClients(1, testSize, &plain, l.Addr().String(), func() time.Duration { return time.Since(began) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return c, server
}

func TestClientTakesPayloadsCutAnywhere(t *testing.T) {
	for name, w := range wires {
		var stream []byte
		for _, f := range []frame{{conn: warmConn}, {conn: warmConn}, {seq: 0}, {seq: 1}, {seq: 2}, {seq: 3, end: true}} {
			stream = append(stream, onWire(w, f)...)
		}
		for cut := 1; cut < len(stream); cut++ {
			c := &clients{wire: w, size: testSize, times: report.NewHistogram(), left: 1}
			p := &pulled{}
			for _, piece := range [][]byte{stream[:cut], stream[cut:]} {
				rest, err := c.take(p, append(p.rest, piece...), 5)
				if err != nil {
					t.Fatalf("%s, cut at %d: %v", name, cut, err)
				}
				p.rest = bytes.Clone(rest)
			}
			if c.delivered.Load() != 3 || c.warm.Load() != 1 || c.left != 0 || c.times.Count() != 3 || len(p.rest) != 0 {
				t.Fatalf("%s, cut at %d: %d delivered, %d warm, %d left, %d bytes of rest", name, cut, c.delivered.Load(), c.warm.Load(), c.left, len(p.rest))
			}
		}
	}
}

func TestClientNoticesWhatIsWrong(t *testing.T) {
	for name, w := range wires {
		changed := onWire(w, frame{})
		changed[len(w.before)+30] ^= 1
		for what, c := range map[string]struct {
			stream []byte
			want   string
		}{
			"lost":            {append(onWire(w, frame{}), onWire(w, frame{seq: 2})...), "frame 2 of connection 0 came instead of frame 1"},
			"twice":           {append(onWire(w, frame{}), onWire(w, frame{})...), "frame 0 of connection 0 came instead of frame 1"},
			"end too early":   {onWire(w, frame{seq: 1, end: true}), "frame 1 of connection 0 came instead of frame 0"},
			"behind the last": {append(onWire(w, frame{end: true}), onWire(w, frame{})...), "comes behind the last"},
			"changed":         {changed, "arrived changed"},
			"nonsense":        {bytes.Repeat([]byte("~\n"), 600), ""},
		} {
			all := &clients{wire: w, size: testSize, times: report.NewHistogram(), left: 1}
			if _, err := all.take(&pulled{}, c.stream, 0); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v, want %s", name, what, err, c.want)
			}
		}
	}
	all := &clients{wire: wires["bus"], size: testSize, times: report.NewHistogram()}
	if _, err := all.take(&pulled{}, bytes.Repeat([]byte{0xff}, 20), 0); err == nil || !strings.Contains(err.Error(), "skipped this client") {
		t.Errorf("a gap: %v", err)
	}
}

func TestClientAnswersNATS(t *testing.T) {
	c, server := oneClient(t, wires["nats"])
	failed := make(chan error)
	read := make(chan error, 1)
	go func() { read <- c.run(failed) }()
	if _, err := io.WriteString(server, "PING\r\nPI"); err != nil {
		t.Fatal(err)
	}
	if err := ask(server, "NG\r\n", "PONG"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write(onWire(c.wire, frame{end: true})); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
}

func TestClientsEndWithTheirServerOrPublisher(t *testing.T) {
	c, server := oneClient(t, wires["bus"])
	failed := make(chan error, 1)
	failed <- io.ErrClosedPipe
	if err := c.run(failed); err != io.ErrClosedPipe {
		t.Errorf("after the publisher failed: %v", err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.run(failed); err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("after the server ended: %v", err)
	}
}

func TestFilesThatAreMissingAreNamed(t *testing.T) {
	limit, err := sys.RaiseFileLimit()
	if err != nil {
		t.Fatal(err)
	}
	if limit < 1<<30 {
		err := CheckFiles(int(limit))
		if want := fmt.Sprintf("%d connections need %d descriptors in each process, and the limit is %d: raise it", limit, limit+spareFiles, limit); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := CheckFiles(1); err != nil {
		t.Error(err)
	}
}

func TestBareLoopCountsWholeFrames(t *testing.T) {
	one := onWire(wires["bus"], frame{})
	n, _, err := findEnds(bytes.NewReader(bytes.Repeat(one, 20000)))
	if n != 20000 || err != nil {
		t.Errorf("%d frames, %v", n, err)
	}
	if _, _, err := findEnds(bytes.NewReader(one[:len(one)-1])); err == nil || !strings.Contains(err.Error(), "ends with 43 bytes of a frame") {
		t.Errorf("a torn frame: %v", err)
	}
	if _, _, err := findEnds(bytes.NewReader(append([]byte{1, 0, 0, 0}, make([]byte, 1<<20)...))); err == nil || !strings.Contains(err.Error(), "larger than the buffer") {
		t.Errorf("a frame of 16 MiB: %v", err)
	}
}
