package main

import (
	"bufio"
	"io"
	"net"
	"strings"
)

func init() {
	scenarios["EgressPushesATopic"] = egressPushes
}

// egressPushes has a topic pushed over TCP and a Unix socket.
func egressPushes(w *world) {
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	w.run("early\n", "pub", "t")
	out, address := w.listening("egress", "--topic", "t", "--codec", "line", "--from", "earliest", "--metrics", "127.0.0.1:0", "--linger", "1ms")
	sock := w.dir + "/push"
	local, _ := w.listening("egress", "--topic", "t", "--codec", "line", "--listen", "unix://"+sock, "--from", "earliest")
	w.reading("t", 2)
	first, second := dialLines(w, "tcp", address), dialLines(w, "unix", sock)
	for _, c := range []*bufio.Reader{first, second} {
		if line, err := c.ReadString('\n'); line != "early\n" || err != nil {
			w.Errorf("first line %q, %v", line, err)
		}
	}
	w.run(numbers(1000), "pub", "t")
	want := numbers(1000)
	for _, c := range []*bufio.Reader{first, second} {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			w.Errorf("%d bytes came, %v", len(got), err)
		}
	}
	checkFigures(w, out.err.String(), "msg=figures address=", "hugebus_egress_deliveries_total{")
	if r := w.run("", "topic", "show", "t"); !strings.Contains(r.out, "egress") {
		w.Errorf("the egress is not shown: %s", r.out)
	}
	out.terminate()
	local.terminate()
	if !strings.Contains(out.err.String(), "pushed from t: 1001 frames to 1 connections, ") {
		w.Errorf("the egress says %q", out.err)
	}
}

func dialLines(w *world, network, address string) *bufio.Reader {
	c, err := net.Dial(network, address)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return bufio.NewReader(c)
}
