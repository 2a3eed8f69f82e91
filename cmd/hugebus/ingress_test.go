package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	scenarios["IngressOverTLS"] = secureIngress
	scenarios["IngressWithFewDescriptors"] = fewDescriptors
	scenarios["KILLOfAnIngress"] = killedIngress
	scenarios["KILLOfTheBrokerAndAWorkerOfAnIngress"] = deathsUnderLoad
}

// secureIngress takes frames of a client with a certificate, refuses one without, and takes a new certificate without a restart.
func secureIngress(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	ca, cert, key := testutil.NewAuthority(w), filepath.Join(w.dir, "c"), filepath.Join(w.dir, "k")
	ca.Issue(w, "server", 2, cert, key)
	in, address := w.ingress("--topic", "t", "--codec", "line", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.File,
		"--handshake-timeout", "1m")
	config := &tls.Config{RootCAs: ca.Pool, ServerName: "localhost"}
	if c, err := tls.Dial("tcp", address, config); err == nil {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			w.Error("a client without a certificate may stay")
		}
		_ = c.Close()
	}
	config.Certificates = []tls.Certificate{ca.Issue(w, "alice", 3, filepath.Join(w.dir, "ac"), filepath.Join(w.dir, "ak"))}
	serial := func() int64 {
		c, err := tls.Dial("tcp", address, config)
		if err != nil {
			return 0 // one file is new, and the other is not
		}
		defer c.Close()
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			w.Error(err)
		}
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 2 {
		w.Errorf("the certificate's number is %d", n)
	}
	w.attached("t", "a frame", func(t client.TopicInfo) bool { return t.Tail == 64 })
	ca.Issue(w, "server", 4, cert, key)
	testutil.Eventually(w, "the new certificate is used", func() bool { return serial() == 4 })
	plain, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	defer plain.Close()
	if _, err := io.WriteString(plain, "hello\n"); err != nil {
		w.Fatal(err)
	}
	testutil.Eventually(w, "who does not speak TLS is refused", func() bool {
		return strings.Contains(in.err.String(), "first record does not look like a TLS handshake")
	})
	in.terminate()
	for _, want := range []string{"reason=handshake_failed", "TLS files were read again"} {
		if !strings.Contains(in.err.String(), want) {
			w.Errorf("no %q in %s", want, in.err)
		}
	}
	if r := w.run("", "ingress", "--listen", ":0", "--topic", "t", "--tls-cert", cert); r.code != 2 || !strings.Contains(r.err, "--tls-key") {
		w.Errorf("a certificate without its key: %d, %s", r.code, r.err)
	}
}

// fewDescriptors: connections beyond the limit of descriptors wait in the listen queue until others end, and are served then.
func fewDescriptors(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	sub, out := w.into("out", "sub", "t")
	w.reading("t", 1)
	file := filepath.Join(w.dir, "address")
	cmd := w.command("ingress", "--listen", "127.0.0.1:0", "--topic", "t", "--codec", "line", "--metrics", "127.0.0.1:0")
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -n 64; file=$0; exec "$@" >"$file"`, file}, cmd.Args...)
	in := w.start(cmd)
	var address string
	testutil.Eventually(w, "it tells its address", func() bool {
		text, _ := os.ReadFile(file)
		address = strings.TrimSpace(string(text))
		return strings.HasSuffix(string(text), "\n")
	})
	const clients = 100
	var conns []net.Conn
	for i := 1; i <= clients; i++ {
		c, err := net.Dial("tcp", address)
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintln(c, i); err != nil {
			w.Fatal(err)
		}
		conns = append(conns, c)
	}
	testutil.Eventually(w, "descriptors are used up", func() bool { return strings.Contains(in.err.String(), "accept failed") })
	for _, c := range conns {
		_ = c.Close()
	}
	w.attached("t", "the frames of all", func(t client.TopicInfo) bool { return t.Tail == 64*clients })
	if figures := checkFigures(w, in.err.String(), "msg=figures address=", `reason="accept_failed"`); strings.Contains(figures, `reason="accept_failed",topic="t"} 0`) {
		w.Errorf("failures of accept are not counted: %s", figures)
	}
	in.terminate()
	w.drained("t")
	sub.terminate()
	seen := make(map[string]bool)
	for line := range strings.Lines(w.read(out)) {
		seen[line] = true
	}
	if len(seen) != clients {
		w.Errorf("%d different frames arrived", len(seen))
	}
	if log := in.err.String(); !strings.Contains(log, "too many open files") || !strings.Contains(log, "ulimit -n") {
		w.Errorf("log: %s", log)
	}
}

// killedIngress: what was published stays, and another one listens on the port at once, where clients of the first were connected.
func killedIngress(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	sub, out := w.into("out", "sub", "t")
	w.reading("t", 1)
	in, address := w.ingress("--topic", "t", "--codec", "line")
	first, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	defer first.Close()
	if _, err := io.WriteString(first, numbers(500)+"half a li"); err != nil {
		w.Fatal(err)
	}
	w.attached("t", "the frames", func(t client.TopicInfo) bool { return t.Tail >= 64*500 })
	if err := in.cmd.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	in.wait()
	again, _ := w.ingress("--topic", "t", "--codec", "line", "--listen", address)
	second, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	defer second.Close()
	if _, err := io.WriteString(second, numbers(1000)[len(numbers(500)):]); err != nil {
		w.Fatal(err)
	}
	testutil.Eventually(w, "the rest", func() bool { return strings.HasSuffix(w.read(out), "\n1000\n") })
	again.terminate()
	sub.terminate()
	if got := w.read(out); got != numbers(1000) {
		w.Errorf("%d lines arrived", strings.Count(got, "\n"))
	}
}

// deathsUnderLoad kills the broker, and a worker of a group, while frames come in over TCP: a subscriber gets all of them in their
// order, and the group gets each.
func deathsUnderLoad(w *world) {
	const frames = 300_000
	w.endKeeper()
	first := w.keptBroker()
	w.ok("topic", "create", "t", "--capacity", "256KiB", "--pages", "4KiB")
	sub, out := w.into("out", "sub", "t", "--count", fmt.Sprint(frames))
	victim, victimFile := w.into("victim", "sub", "t", "--group", "g")
	worker, workerFile := w.into("worker", "sub", "t", "--group", "g")
	w.reading("t", 3)
	in, address := w.ingress("--topic", "t", "--codec", "line")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	all := numbers(frames)
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(conn, all)
		sent <- err
	}()
	w.moving("t")
	for _, p := range []*process{first, victim} {
		if err := p.cmd.Process.Kill(); err != nil {
			w.Fatal(err)
		}
		p.wait()
	}
	w.Logf("%d lines had arrived when they were dead", strings.Count(w.read(out), "\n"))
	second := w.keptBroker()
	if err := <-sent; err != nil {
		w.Fatal(err)
	}
	sub.succeed()
	if got := w.read(out); got != all {
		w.Errorf("%d of %d lines arrived", strings.Count(got, "\n"), frames)
	}
	w.drained("t")
	in.terminate()
	worker.terminate()
	seen := make(map[string]bool, frames)
	for _, file := range []string{victimFile, workerFile} {
		for line := range strings.Lines(w.read(file)) {
			seen[line] = true
		}
	}
	for i := 1; i <= frames; i++ {
		if !seen[fmt.Sprintln(i)] {
			w.Fatalf("the group did not get frame %d", i)
		}
	}
	w.ok("shutdown")
	second.succeed()
}
