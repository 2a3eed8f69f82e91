package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

func init() {
	scenarios["RedisClientsTalkToTheBus"] = redisClients
	scenarios["KILLOfTheBrokerAndAGateway"] = killedGateway
}

// redisClients has frames go from a Redis client to the bus and back.
func redisClients(w *world) {
	w.broker()
	w.ok("topic", "create", "room", "--capacity", "64KiB")
	sub, out := w.into("out", "sub", "room", "--count", "2")
	gw, address := w.listening("gateway", "--metrics", "127.0.0.1:0")
	w.reading("room", 1)
	c := dialLines(w, "tcp", address)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PUBLISH room hello\r\nSUBSCRIBE room\r\n"); err != nil {
		w.Fatal(err)
	}
	want := ":0\r\n*3\r\n$9\r\nsubscribe\r\n$4\r\nroom\r\n:1\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		w.Errorf("got %q, %v", got, err)
	}
	w.run("world\n", "pub", "room")
	want = "*3\r\n$7\r\nmessage\r\n$4\r\nroom\r\n$5\r\nworld\r\n"
	got = make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		w.Errorf("got %q, %v", got, err)
	}
	sub.succeed()
	if text := w.read(out); text != "hello\nworld\n" {
		w.Errorf("the bus got %q", text)
	}
	checkFigures(w, gw.err.String(), "msg=figures address=", "hugebus_resp_commands_total{")
	gw.terminate()
	if _, err := c.ReadByte(); err != io.EOF {
		w.Errorf("after the end: %v", err)
	}
	if !strings.Contains(gw.err.String(), "gateway: 2 commands from 2 connections, 1 frames published, 0 given up, 1 messages delivered") {
		w.Errorf("the gateway says %q", gw.err)
	}
}

// subscribed is a connection to a gateway that has subscribed to a channel of one letter.
func (w *world) subscribed(address, channel string) *bufio.Reader {
	w.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		w.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "SUBSCRIBE %s\r\n", channel); err != nil {
		w.Fatal(err)
	}
	r := bufio.NewReaderSize(conn, 1<<20)
	wantLines(w, r, "*3", "$9", "subscribe", "$1", channel, ":1")
	return r
}

func wantLines(w *world, r *bufio.Reader, lines ...string) {
	w.Helper()
	for _, want := range lines {
		if got, err := r.ReadString('\n'); err != nil || strings.TrimRight(got, "\r\n") != want {
			w.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
}

// killedGateway kills the broker while messages go from Redis clients to Redis clients: all arrive, in order. Then it kills the
// gateway, and another one takes its port at once.
func killedGateway(w *world) {
	const messages = 60_000
	w.endKeeper()
	first := w.keptBroker()
	w.ok("topic", "create", "chat", "--capacity", "256KiB", "--pages", "4KiB")
	gw, address := w.listening("gateway", "--resp-topic", "chat")
	sub := w.subscribed(address, "a")
	pub, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	defer pub.Close()
	go func() { _, _ = io.Copy(io.Discard, pub) }() // replies
	sent := make(chan error, 1)
	go func() {
		var all strings.Builder
		for i := range messages {
			fmt.Fprintf(&all, "PUBLISH a %08d\r\n", i)
		}
		_, err := io.WriteString(pub, all.String())
		sent <- err
	}()
	for i := range messages {
		if i == messages/4 {
			if err := first.cmd.Process.Kill(); err != nil {
				w.Fatal(err)
			}
			first.wait()
		}
		wantLines(w, sub, "*3", "$7", "message", "$1", "a", "$8", fmt.Sprintf("%08d", i))
	}
	if err := <-sent; err != nil {
		w.Fatal(err)
	}
	other := w.subscribed(address, "b") // without a broker: the topic is attached already
	second := w.keptBroker()
	if _, err := io.WriteString(pub, "PUBLISH b x\r\n"); err != nil {
		w.Fatal(err)
	}
	wantLines(w, other, "*3", "$7", "message", "$1", "b", "$1", "x")
	if err := gw.cmd.Process.Kill(); err != nil {
		w.Fatal(err)
	}
	gw.wait()
	again := w.start(w.command("gateway", "--listen", address, "--resp-topic", "chat"))
	for {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			break
		}
		select {
		case <-again.done:
			w.Fatalf("the gateway ended: %s", again.err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	sub = w.subscribed(address, "a")
	if conn, err := net.Dial("tcp", address); err != nil {
		w.Error(err)
	} else {
		defer conn.Close()
		if _, err := io.WriteString(conn, "PUBLISH a again\r\n"); err != nil {
			w.Error(err)
		}
		wantLines(w, sub, "*3", "$7", "message", "$1", "a", "$5", "again")
	}
	again.terminate()
	w.ok("shutdown")
	second.succeed()
}
