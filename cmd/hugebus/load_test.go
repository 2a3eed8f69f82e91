package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	scenarios["SIGTERMOfAPublisher"] = terminatePublisher
	scenarios["SIGTERMOfAGenerator"] = terminateGenerator
	scenarios["SIGTERMOfASubscriber"] = terminateSubscriber
	scenarios["SIGTERMOfAnIngress"] = terminateIngress
	scenarios["SIGTERMOfADatagramIngress"] = datagramIngress
	scenarios["SIGTERMOfTheBroker"] = terminateBroker
	scenarios["ASecondSignalGivesUp"] = secondSignal
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

// datagramIngress: what the socket's queue holds is published before the ingress ends.
func datagramIngress(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	sub, out := w.into("out", "sub", "t")
	w.reading("t", 1)
	in, address := w.ingress("--listen", "udp://127.0.0.1:0", "--topic", "t", "--max-frame", "10", "--metrics", "127.0.0.1:0")
	conn, err := net.Dial("udp", address)
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	for i := 1; i <= 100; i++ {
		if _, err := fmt.Fprint(conn, i); err != nil {
			w.Fatal(err)
		}
	}
	if _, err := io.WriteString(conn, "much longer than the limit"); err != nil {
		w.Fatal(err)
	}
	checkFigures(w, in.err.String(), "msg=figures address=", "hugebus_ingress_dropped_datagrams_total{")
	in.terminate()
	w.drained("t")
	sub.terminate()
	if got := w.read(out); got != numbers(100) {
		w.Errorf("%q arrived", got)
	}
	for _, want := range []string{"100 frames", "from 101 datagrams; 0 more were dropped", "datagram thrown away", "limit=10"} {
		if !strings.Contains(in.err.String(), want) {
			w.Errorf("no %q in %s", want, in.err)
		}
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
	// The subscriber waits for its reader; signals that come close together count as one.
	testutil.Eventually(w, "the subscriber ends", func() bool {
		_ = stuck.cmd.Process.Signal(syscall.SIGTERM) // an error: it has ended
		select {
		case <-stuck.done:
			return true
		default:
			return false
		}
	})
	if code := stuck.wait(); code != 1 || !strings.Contains(stuck.err.String(), "standard output is not read") {
		w.Errorf("sub: status %d, %s", code, stuck.err)
	}
}
