package server

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/hugebus/hugebus/internal/sys"
)

// runNATS is a NATS server in this process, on a port of loopback that the kernel chooses.
func runNATS(ctx context.Context, _ string, ready func(string)) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, MaxPayload: 8 << 20, MaxPending: 256 << 20,
	})
	if err != nil {
		return fmt.Errorf("server: nats: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		s.Shutdown()
		return fmt.Errorf("server: nats takes no connections after %v", patience)
	}
	ready(s.ClientURL())
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// RedisProgram finds Redis' server; the error says which Debian package has it.
func RedisProgram() (string, error) { return program("redis-server", "redis-server") }

// RouDiProgram finds iceoryx' daemon; the error says which Debian package has it.
func RouDiProgram() (string, error) { return program("iox-roudi", "iceoryx") }

func program(name, debian string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is not installed: apt-get install %s", name, debian)
	}
	return path, nil
}

// runRedis starts a Redis server on a Unix socket in dir.
func runRedis(ctx context.Context, dir string, ready func(string)) error {
	socket := filepath.Join(dir, "redis.sock")
	return startRedis(ctx, dir, "unix", socket, ready, "--port", "0", "--unixsocket", socket)
}

// runRedisTCP starts one on a port of loopback. Redis takes no socket from its parent, so the port is free only most likely.
func runRedisTCP(ctx context.Context, dir string, ready func(string)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("server: redis: %w", err)
	}
	address := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		return fmt.Errorf("server: redis: %w", err)
	}
	if _, err := sys.RaiseFileLimit(); err != nil {
		return err
	}
	return startRedis(ctx, dir, "tcp", address.String(), ready, "--port", strconv.Itoa(address.Port), "--bind", "127.0.0.1",
		"--maxclients", "30000", "--tcp-keepalive", "0")
}

// startRedis starts a Redis server, which saves nothing and never gives up on a subscriber that is behind.
func startRedis(ctx context.Context, dir, network, address string, ready func(string), flags ...string) error {
	path, err := RedisProgram()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, append(flags, "--dir", dir,
		"--save", "", "--appendonly", "no", "--loglevel", "warning", "--client-output-buffer-limit", "pubsub 0 0 0")...)
	up := func() bool {
		conn, err := net.Dial(network, address)
		return err == nil && conn.Close() == nil
	}
	return runProgram(ctx, cmd, up, func() { ready(address) })
}

// runRouDi starts iceoryx' daemon. A host has one at most: a second one says so and ends.
func runRouDi(ctx context.Context, _ string, ready func(string)) error {
	path, err := RouDiProgram()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, "--log-level", "error", "--monitoring-mode", "off")
	said := &awaited{text: "ready for clients"}
	cmd.Stdout = said
	return runProgram(ctx, cmd, said.seen.Load, func() { ready("") })
}

// An awaited text is one that a program writes once it is ready. It is for one writer.
type awaited struct {
	text string
	got  []byte
	seen atomic.Bool
}

// Write looks for the text.
func (a *awaited) Write(b []byte) (int, error) {
	if !a.seen.Load() {
		a.got = append(a.got, b...)
		a.seen.Store(bytes.Contains(a.got, []byte(a.text)))
	}
	return len(b), nil
}
