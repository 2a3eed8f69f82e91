package broker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/control"
	"github.com/hugebus/hugebus/internal/keeper/keepertest"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
	"github.com/hugebus/hugebus/shm"
)

func TestMain(m *testing.M) { keepertest.Main(m) }

// small are options of a topic that costs little.
var small = TopicOptions{Capacity: 64 << 10, Pages: "4KiB", Publishers: 4, Subscribers: 8, Groups: 2}

// A logBook is a log that tests read.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the log says text.
func (l *logBook) await(t testing.TB, text string) {
	t.Helper()
	testutil.Eventually(t, "the log says "+text, func() bool { return strings.Contains(l.String(), text) })
}

// A server is a running broker.
type server struct {
	*Broker
	log  *logBook
	stop context.CancelFunc
	done chan error
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start runs a broker until the test ends.
func start(t testing.TB, c Config) *server {
	t.Helper()
	if c.Socket == "" {
		c.Socket = filepath.Join(shortDir(t), "s")
	}
	s := &server{log: &logBook{}, done: make(chan error, 1)}
	c.Logger = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.Broker = b
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() { s.done <- b.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Logf("the broker's log:\n%s", s.log)
		}
	})
	return s
}

// A peer is a client that speaks the protocol by hand.
type peer struct {
	t      testing.TB
	conn   *control.Conn
	lastID uint64
	events []control.Message
}

// connect dials and says hello.
func (s *server) connect(t testing.TB) *peer {
	t.Helper()
	conn, err := control.Dial(context.Background(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(4 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	hello := control.NewHello(ring.LayoutVersion)
	hello.Name = "test"
	if _, err := conn.SayHello(hello); err != nil {
		t.Fatal(err)
	}
	return &peer{t: t, conn: conn, lastID: 1}
}

// ask sends a request and returns the reply. Events that come before it are kept.
func (p *peer) ask(op control.Op, body, into any) ([]*os.File, error) {
	p.t.Helper()
	raw, err := control.EncodeBody(body)
	if err != nil {
		p.t.Fatal(err)
	}
	p.lastID++
	if err := p.conn.Send(control.Request{ID: p.lastID, Op: op, Body: raw}); err != nil {
		return nil, err
	}
	for {
		m, files, err := p.receive()
		if err != nil {
			return nil, err
		}
		if m.Event != "" {
			p.events = append(p.events, m)
			continue
		}
		if m.ID != p.lastID {
			p.t.Fatalf("reply has id %d, want %d", m.ID, p.lastID)
		}
		if m.Error != nil {
			if len(files) != 0 {
				p.t.Errorf("an error came with %d descriptors", len(files))
			}
			return nil, m.Error
		}
		if into != nil {
			if err := m.Decode(into); err != nil {
				p.t.Fatal(err)
			}
		}
		return files, nil
	}
}

func (p *peer) receive() (control.Message, []*os.File, error) {
	packet, err := p.conn.Receive()
	if err != nil {
		return control.Message{}, nil, err
	}
	m, err := control.DecodeMessage(packet.Data)
	return m, packet.Files, err
}

// must is ask for requests that succeed, without descriptors.
func (p *peer) must(op control.Op, body, into any) {
	p.t.Helper()
	files, err := p.ask(op, body, into)
	if err != nil {
		p.t.Fatalf("%s: %v", op, err)
	}
	if len(files) != 0 {
		p.t.Fatalf("%s: %d descriptors came", op, len(files))
	}
}

// refused is ask for requests that fail with a code and a message that says all of want.
func (p *peer) refused(code control.Code, op control.Op, body any, want ...string) {
	p.t.Helper()
	_, err := p.ask(op, body, nil)
	wantError(p.t, err, code, want...)
}

func wantError(t testing.TB, err error, code control.Code, want ...string) {
	t.Helper()
	var e *control.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error is %v, want code %s", err, code)
	}
	for _, text := range want {
		if !strings.Contains(e.Error(), text) {
			t.Errorf("error %q does not say %q", e, text)
		}
	}
}

// create makes a topic.
func (p *peer) create(name string, o TopicOptions) control.TopicInfo {
	p.t.Helper()
	var r control.TopicReply
	p.must(control.OpCreate, control.CreateRequest{Name: name, Options: o}, &r)
	return r.Topic
}

// show describes a topic.
func (p *peer) show(name string) control.TopicInfo {
	p.t.Helper()
	var r control.TopicReply
	p.must(control.OpShow, control.ShowRequest{Name: name}, &r)
	return r.Topic
}

// A view is an attachment with the topic's memory mapped.
type view struct {
	control.AttachReply
	ring     *ring.Ring
	segments []*shm.Segment
	files    []*os.File // doorbells
}

// attach attaches and maps.
func (p *peer) attach(r control.AttachRequest) *view {
	p.t.Helper()
	v := &view{}
	files, err := p.ask(control.OpAttach, r, &v.AttachReply)
	if err != nil {
		p.t.Fatalf("attach %s to %s: %v", r.Kind, r.Topic, err)
	}
	if r.LaneOnly {
		if len(files) != 0 {
			p.t.Fatalf("lane only: %d descriptors came", len(files))
		}
		return v
	}
	if len(files) != control.MaxDescriptors {
		p.t.Fatalf("%d descriptors came", len(files))
	}
	writable := []bool{r.Kind.Publishes(), true, r.Kind.Publishes()}
	for i, w := range writable {
		s, err := shm.Open(files[i], w)
		if err != nil {
			p.t.Fatal(err)
		}
		v.segments = append(v.segments, s)
	}
	v.files = files[len(writable):]
	p.t.Cleanup(v.close)
	if v.ring, err = ring.Attach(ring.Memory{
		Ctl: v.segments[0].Bytes(), Cursors: v.segments[1].Bytes(), Data: v.segments[2].Bytes(),
	}); err != nil {
		p.t.Fatal(err)
	}
	return v
}

func (v *view) close() {
	for _, s := range v.segments {
		s.Close()
	}
	for _, f := range v.files {
		f.Close()
	}
}

func (p *peer) publisher(topic string) (*view, *ring.Publisher) {
	p.t.Helper()
	v := p.attach(control.AttachRequest{Topic: topic, Kind: control.KindPublisher})
	pub, err := v.ring.Publisher(v.Slot, ring.PublisherOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return v, pub
}

func (p *peer) subscriber(topic string) (*view, *ring.Subscriber) {
	p.t.Helper()
	v := p.attach(control.AttachRequest{Topic: topic, Kind: control.KindSubscriber})
	sub, err := v.ring.Subscriber(v.Slot, ring.SubscriberOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := sub.Join(ring.Latest(), func() error { return nil }); err != nil {
		p.t.Fatal(err)
	}
	return v, sub
}

func (p *peer) member(topic, group string) (*view, *ring.Member) {
	p.t.Helper()
	v := p.attach(control.AttachRequest{Topic: topic, Kind: control.KindMember, Group: group})
	m, err := v.ring.Member(v.Group, v.Member, ring.SubscriberOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return v, m
}

// die ends the connection as the kernel does for a process that is killed.
func (p *peer) die() {
	p.t.Helper()
	if err := p.conn.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// payloads polls everything there is.
func payloads(t testing.TB, poll func(int, func(ring.Frame) error) (int, error)) []string {
	t.Helper()
	var out []string
	for {
		n, err := poll(16, func(f ring.Frame) error {
			out = append(out, string(f.Payload))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return out
		}
	}
}
