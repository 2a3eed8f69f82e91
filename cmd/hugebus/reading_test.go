package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	scenarios["AClosedOutputEndsQuietly"] = closedOutput
	scenarios["GapsAreReported"] = gapsAreReported
	scenarios["KillOfAGroupMember"] = killOfAMember
	scenarios["FiguresOfAnIngress"] = ingressFigures
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
