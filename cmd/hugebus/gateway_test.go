package main

import (
	"io"
	"net"
	"strings"
)

func init() {
	scenarios["RedisClientsTalkToTheBus"] = redisClients
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
	if !strings.Contains(gw.err.String(), "gateway: 2 commands from 2 connections, 1 frames published, 1 messages delivered") {
		w.Errorf("the gateway says %q", gw.err)
	}
}
