package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	scenarios["SIGTERMOfAPublisher"] = terminatePublisher
	scenarios["SIGTERMOfAGenerator"] = terminateGenerator
	scenarios["SIGTERMOfASubscriber"] = terminateSubscriber
	scenarios["SIGTERMOfAnIngress"] = terminateIngress
	scenarios["SIGTERMOfTheBroker"] = terminateBroker
	scenarios["ASecondSignalGivesUp"] = secondSignal
	scenarios["AClosedOutputEndsQuietly"] = closedOutput
	scenarios["GapsAreReported"] = gapsAreReported
	scenarios["KillOfAGroupMember"] = killOfAMember
	scenarios["FiguresOfAnIngress"] = ingressFigures
}

// frames is how many frames a command's summary says that it has published.
func (w *world) frames(p *process, topic string) int {
	w.Helper()
	_, rest, ok := strings.Cut(p.err.String(), "published to "+topic+": ")
	var n int
	if _, err := fmt.Sscan(rest, &n); !ok || err != nil {
		w.Fatalf("no summary in %q", p.err)
	}
	return n
}

// moving waits until a topic's tail has moved by some frames.
func (w *world) moving(topic string) {
	w.Helper()
	before, _ := w.show(topic)
	w.attached(topic, "moved", func(t client.TopicInfo) bool { return t.Tail > before.Tail+64*1000 })
}

// drained waits until all readers of a topic have read everything.
func (w *world) drained(topic string) {
	w.Helper()
	w.attached(topic, "no lag", func(t client.TopicInfo) bool {
		for _, s := range t.Subscribers {
			if s.LagBytes != 0 {
				return false
			}
		}
		return true
	})
}

// terminatePublisher: every whole line that was read is published, and no half one.
func terminatePublisher(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "256KiB")
	sub, out := w.into("out", "sub", "t")
	w.reading("t", 1)
	cmd := w.command("pub", "t")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	pub := w.start(cmd)
	fed := make(chan struct{})
	go func() { endless(stdin); close(fed) }()
	w.moving("t")
	pub.terminate()
	<-fed // its pipe is broken now
	w.drained("t")
	sub.terminate()
	n := w.frames(pub, "t")
	if got := w.read(out); got != numbers(n) {
		w.Errorf("%d lines arrived, and %d were published", strings.Count(got, "\n"), n)
	}
}

func terminateGenerator(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "256KiB")
	sub, out := w.into("out", "sub", "t", "--format", "raw")
	w.reading("t", 1)
	pub := w.start(w.command("pub", "t", "--size", "48"))
	w.moving("t")
	pub.terminate()
	w.drained("t")
	sub.terminate()
	if n := w.frames(pub, "t"); len(w.read(out)) != 48*n {
		w.Errorf("%d bytes arrived of %d frames", len(w.read(out)), n)
	}
}

// terminateSubscriber: what it had taken it has written, up to the end of a line.
func terminateSubscriber(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "256KiB")
	for _, args := range [][]string{{}, {"--group", "g"}} {
		sub, out := w.into("out", append([]string{"sub", "t"}, args...)...)
		w.reading("t", 1)
		cmd := w.command("pub", "t")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			w.Fatal(err)
		}
		pub := w.start(cmd)
		fed := make(chan struct{})
		go func() { endless(stdin); close(fed) }()
		w.moving("t")
		sub.terminate()
		got := w.read(out)
		if n := strings.Count(got, "\n"); n == 0 || got != numbers(n) {
			w.Errorf("%q: %d bytes in %d lines, which end %q", args, len(got), n, got[max(0, len(got)-20):])
		}
		pub.terminate() // nobody gates it any more
		<-fed
		w.attached("t", "nobody", func(t client.TopicInfo) bool { return t.SubscriberCount == 0 })
		if len(args) > 0 {
			continue
		}
	}
}

// terminateIngress: what senders had sent whole is published, and no half frame.
func terminateIngress(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "256KiB")
	sub, out := w.into("out", "sub", "t", "--format", "raw")
	w.reading("t", 1)
	in, address := w.ingress("--topic", "t")
	var fed []chan struct{}
	for range 3 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			w.Fatal(err)
		}
		defer conn.Close()
		done := make(chan struct{})
		fed = append(fed, done)
		go func() { // frames of 100 equal bytes, in pieces that are no frames
			defer close(done)
			b := bufio.NewWriterSize(conn, 4099)
			for n := byte(0); ; n++ {
				frame := binary.BigEndian.AppendUint32(nil, 100)
				for range 100 {
					frame = append(frame, n)
				}
				if _, err := b.Write(frame); err != nil {
					return
				}
			}
		}()
	}
	w.moving("t")
	in.terminate()
	for _, done := range fed {
		<-done
	}
	w.drained("t")
	sub.terminate()
	got := w.read(out)
	if n := w.frames(in, "t"); len(got) != 100*n || n == 0 {
		w.Fatalf("%d bytes arrived of %d frames", len(got), n)
	}
	for i := 0; i < len(got); i += 100 {
		if strings.Count(got[i:i+100], got[i:i+1]) != 100 {
			w.Fatalf("the frame at byte %d is half of another: %q", i, got[i:i+100])
		}
	}
	if c, err := net.Dial("tcp", address); err == nil {
		_ = c.Close()
		w.Error("it still accepts connections")
	}
}

// terminateBroker: it is not on the way of frames.
func terminateBroker(w *world) {
	b := w.broker()
	w.ok("topic", "create", "t", "--capacity", "256KiB")
	sub, out := w.into("out", "sub", "t", "--count", "300000")
	w.reading("t", 1)
	cmd := w.command("pub", "t")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	pub := w.start(cmd)
	half := numbers(150_000)
	if _, err := io.WriteString(stdin, half); err != nil {
		w.Fatal(err)
	}
	b.terminate()
	if _, err := os.Stat(w.socket); err == nil {
		w.Error("the socket is still there")
	}
	if _, err := io.WriteString(stdin, numbers(300_000)[len(half):]); err != nil {
		w.Fatal(err)
	}
	_ = stdin.Close()
	pub.succeed()
	sub.succeed()
	if got := w.read(out); got != numbers(300_000) {
		w.Errorf("%d lines arrived", strings.Count(got, "\n"))
	}
}

// secondSignal: who waits for room in a full topic ends when it is told so twice, and says what was not published.
func secondSignal(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "4KiB")
	// A group that has no members left still gates for a while, since a member died in it; a subscriber that does not
	// read is simpler: its output is a pipe that nobody reads.
	stuck, _ := w.stuck("sub", "t")
	w.reading("t", 1)
	pub := w.start(w.command("pub", "t", "--size", "512"))
	full := func() {
		testutil.Eventually(w, "the topic is full", func() bool {
			before, _ := w.show("t")
			after, _ := w.show("t")
			return before.Tail == after.Tail && after.Tail-after.Earliest >= 2048
		})
	}
	full()
	signal := func(p *process) {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			w.Fatal(err)
		}
	}
	signal(pub)
	testutil.Eventually(w, "pub says what it waits for", func() bool {
		return strings.Contains(pub.err.String(), `topic "t" is full`)
	})
	signal(pub)
	if code := pub.wait(); code != 1 || !strings.Contains(pub.err.String(), "a second signal came") || !strings.Contains(pub.err.String(), `are not in topic "t"`) {
		w.Errorf("pub: status %d, %s", code, pub.err)
	}
	in, address := w.ingress("--topic", "t", "--codec", "line")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Repeat("a line\n", 100)); err != nil {
		w.Fatal(err)
	}
	full()
	signal(in)
	testutil.Eventually(w, "the ingress says what it waits for", func() bool {
		return strings.Contains(in.err.String(), `topic "t" is full`)
	})
	signal(in)
	if code := in.wait(); code != 1 || !strings.Contains(in.err.String(), "gave up waiting for room") {
		w.Errorf("ingress: status %d, %s", code, in.err)
	}
	_ = stuck.cmd.Process.Kill()
	stuck.wait()
}

// stuck starts a command whose output, a pipe, nobody reads.
func (w *world) stuck(args ...string) (*process, *os.File) {
	w.Helper()
	r, out, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = r.Close() })
	cmd := w.command(args...)
	cmd.Stdout = out
	p := w.start(cmd)
	_ = out.Close()
	return p, r
}

func closedOutput(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	for _, args := range [][]string{{}, {"--group", "g"}, {"--format", "json"}} {
		r, out, err := os.Pipe()
		if err != nil {
			w.Fatal(err)
		}
		_ = r.Close()
		cmd := w.command(append([]string{"sub", "t"}, args...)...)
		cmd.Stdout = out
		sub := w.start(cmd)
		_ = out.Close()
		w.reading("t", 1)
		if r := w.run("a\n", "pub", "t", "-q"); r.code != 0 {
			w.Fatalf("%+v", r)
		}
		sub.succeed()
		if sub.err.String() != "" {
			w.Errorf("%q: it says %q", args, sub.err)
		}
	}
}

// gapsAreReported: a lossy subscriber that is too slow is told exactly what it missed.
func gapsAreReported(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "4KiB")
	r, out, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	defer r.Close()
	cmd := w.command("sub", "t", "--lossy", "--format", "json")
	cmd.Stdout = out
	sub := w.start(cmd)
	_ = out.Close()
	w.reading("t", 1)
	// Its output is a pipe of 64 KiB that nobody reads yet. Frames are 512 bytes with their headers, so that a lap of
	// the ring is eight of them and has no padding.
	const frame = 512
	if p := w.run("", "pub", "t", "--size", "496", "--count", "5000"); p.code != 0 {
		w.Fatalf("%+v", p)
	}
	in := bufio.NewScanner(r)
	var next, gaps uint64
	for next < 5000*frame && in.Scan() {
		var line struct {
			Position *uint64
			Payload  string
			Gap      *struct{ From, To, Bytes uint64 }
		}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			w.Fatalf("%s: %v", in.Bytes(), err)
		}
		if g := line.Gap; g != nil {
			if g.From != next || g.To <= g.From || g.To-g.From != g.Bytes {
				w.Fatalf("gap %+v, and %d would have been next", *g, next)
			}
			next, gaps = g.To, gaps+1
			continue
		}
		if number := fmt.Sprint(next/frame + 1); *line.Position != next || !strings.HasPrefix(line.Payload, number+".") {
			w.Fatalf("frame at %d, %.20q, and frame %s at %d would have been next", *line.Position, line.Payload, number, next)
		}
		next += frame
	}
	if gaps == 0 {
		w.Error("nothing was missed")
	}
	sub.terminate()
	if n := strings.Count(sub.err.String(), "overrun: missed"); n < 1 {
		w.Errorf("standard error: %s", sub.err)
	}
}

// killOfAMember: what a member had not finished when it was killed goes to another one, marked.
func killOfAMember(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "1MiB")
	dead, pipe := w.stuck("sub", "t", "--group", "g")
	w.reading("t", 1)
	text := strings.Repeat(strings.Repeat("z", 9_999)+"\n", 20)
	if r := w.run(text, "pub", "t", "-q"); r.code != 0 {
		w.Fatalf("%+v", r)
	}
	// The pipe holds 65,536 bytes: six frames and a part of the seventh.
	const held = 6
	testutil.Eventually(w, "the member is in the middle of a frame", func() bool {
		n, err := sys.Unread(int(pipe.Fd()))
		if err != nil {
			w.Fatal(err)
		}
		return n > held*10_000
	})
	// A second member gets what is left, and has to wait for the frame that the first one holds.
	sub, out := w.into("out", "sub", "t", "--group", "g", "--format", "json")
	w.reading("t", 2)
	if err := dead.cmd.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	dead.wait()
	w.attached("t", "a group that is done", func(t client.TopicInfo) bool {
		return t.SubscriberCount == 1 && t.Groups[0].LagBytes == 0 && t.Groups[0].UnfinishedRanges == 0
	})
	sub.terminate()
	seen := map[uint64]uint64{}
	for line := range strings.Lines(w.read(out)) {
		var f struct{ Position, Redelivered uint64 }
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			w.Fatal(err)
		}
		if _, twice := seen[f.Position]; twice {
			w.Errorf("the frame at %d came twice", f.Position)
		}
		seen[f.Position] = f.Redelivered
	}
	const frame = 10048 // 16 + 9,999 in cells of 64
	for i := uint64(held); i < 20; i++ {
		if marks, came := seen[i*frame]; !came || (marks > 0) != (i == held) {
			w.Errorf("frame %d came: %v, with %d redeliveries", i, came, marks)
		}
	}
	if len(seen) != 20-held {
		w.Errorf("%d frames came, also some that the dead member had finished", len(seen))
	}
}

func ingressFigures(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	in, address := w.ingress("--topic", "t", "--codec", "line", "--metrics", "127.0.0.1:0", "--max-frame", "100",
		"--max-conns", "5", "--idle-timeout", "1h", "--partial-timeout", "1h", "--drain-timeout", "1h", "--lanes", "1")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := io.WriteString(conn, "a\nb\n"); err != nil {
		w.Fatal(err)
	}
	_ = conn.Close()
	w.attached("t", "two frames", func(t client.TopicInfo) bool { return t.Tail == 128 })
	if r := w.run("", "topic", "show", "t"); !strings.Contains(r.out, "1/64 publishers") {
		w.Errorf("%s", r.out)
	}
	text := checkFigures(w, in.err.String(), "msg=figures address=", "hugebus_ingress_connections_total{")
	if !strings.Contains(text, `codec="line"`) {
		w.Errorf("figures: %s", text)
	}
	in.terminate()
}

// checkFigures finds an address in a log behind a key, and wants a figure there.
func checkFigures(w *world, log, key, want string) string {
	w.Helper()
	_, rest, ok := strings.Cut(log, key)
	if !ok {
		w.Fatalf("no %s in %s", key, log)
	}
	address := rest[:strings.IndexAny(rest, "\"\n ")]
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport}).Get("http://" + address + "/metrics")
	if err != nil {
		w.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || !strings.Contains(string(text), want) {
		w.Errorf("no %q in the figures, %v", want, err)
	}
	return string(text)
}
