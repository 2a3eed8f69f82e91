package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestConfigMistakesAreNamed(t *testing.T) {
	errLane := errors.New("no such topic")
	tp := newTopic(1000)
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"codec", func(c *Config) { c.Codec = "json" }, `gateway: unknown codec "json": use one of len32, line`},
		{"no lane", func(c *Config) { c.NewLane = nil }, "gateway: no NewLane: set it to a function that opens a publisher of the topic"},
		{"no address", func(c *Config) { c.Listen = "" },
			"gateway: no address to listen on: give HOST:PORT, as in 127.0.0.1:7070 (port 0 takes a free one)"},
		{"lanes", func(c *Config) { c.Lanes = -1 }, "gateway: -1 lanes: give 1 to 4096, or 0 for the default (--lanes)"},
		{"many lanes", func(c *Config) { c.Lanes = 100_000_000 }, "gateway: 100000000 lanes: give 1 to 4096, or 0 for the default (--lanes)"},
		{"acceptors", func(c *Config) { c.Acceptors = 1025 }, "gateway: 1025 acceptors: give 1 to 1024, or 0 for the default (--acceptors)"},
		{"backlog", func(c *Config) { c.Socket.Backlog = 1<<32 + 1 }, "gateway: --backlog is 4294967297: give at most 2147483647, or 0 for the kernel's choice"},

		{"buffer", func(c *Config) { c.BufferSize = 100 }, "gateway: a read buffer of 100 bytes: at least 4096 are needed"},
		{"budget", func(c *Config) { c.TurnBudget = -5 }, "gateway: a turn's budget of -5 bytes: at least 1 is needed"},
		{"batch", func(c *Config) { c.BatchFrames = -1 }, "gateway: batches of -1 frames: at least 1 is needed"},
		{"frame", func(c *Config) { c.MaxFrame = -1 },
			"gateway: a frame limit of -1 bytes: give a positive number, or 0 for what the topic allows"},
		{"frame above the topic's", func(c *Config) { c.MaxFrame = 1001 },
			"gateway: a frame limit of 1001 bytes is above the topic's own of 1000 bytes: lower it (--max-frame), or use a topic with a larger capacity"},
		{"idle", func(c *Config) { c.IdleTimeout = -1 }, "gateway: --idle-timeout is -1ns: give a positive duration, or 0 for never"},
		{"drain", func(c *Config) { c.DrainTimeout = -1 }, "gateway: --drain-timeout is -1ns: give a positive duration, or 0 for no end"},
		{"lane fails", func(c *Config) {
			c.NewLane = func(ctx context.Context) (Lane, error) {
				if tp.opened == 1 {
					return nil, errLane
				}
				return tp.newLane(ctx)
			}
		}, "gateway: open lane 2 of 2: no such topic"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tp.opened, tp.closed = 0, 0
			cfg := Config{Listen: "127.0.0.1:0", NewLane: tp.newLane, Lanes: 2}
			tc.change(&cfg)
			in, err := NewIngress(t.Context(), cfg)
			if err == nil {
				t.Fatal(in.Close())
			}
			if err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
			if tp.opened != tp.closed {
				t.Errorf("%d lanes opened, %d closed", tp.opened, tp.closed)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	tp := newTopic(1234)
	in := unitIngress(t, func(c *Config) { c.NewLane, c.Lanes = tp.newLane, 0 })
	c := in.cfg
	if c.Lanes < 1 || c.Lanes > maxDefaultLanes || tp.opened != c.Lanes || c.BufferSize != 256<<10 ||
		c.TurnBudget != 256<<10 || c.BatchFrames != 1024 || c.MaxConns != 16384 || c.IdleTimeout != 0 ||
		c.PartialTimeout != time.Minute || c.DrainTimeout != 0 || in.MaxFrame() != 1234 || in.codec.Name() != "len32" {
		t.Errorf("%+v, frames up to %d", c, in.MaxFrame())
	}
	in = unitIngress(t, func(c *Config) { c.NewLane, c.MaxFrame = tp.newLane, 10 })
	if in.MaxFrame() != 10 {
		t.Errorf("frames up to %d, want 10", in.MaxFrame())
	}
}

func TestTheLeastLaneDecidesTheFrameLimit(t *testing.T) {
	limit, err := Config{}.frameLimit([]Lane{&lane{topic: newTopic(7)}, &lane{topic: newTopic(5)}})
	if limit != 5 || err != nil {
		t.Errorf("limit %d, %v", limit, err)
	}
}

func TestListenErrorsSayWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	check(t, err)
	for _, tc := range []struct {
		address string
		is      error
		lanes   int // that were opened, and are closed
		parts   []string
	}{
		{taken.Addr().String(), unix.EADDRINUSE, 1, []string{"ss -ltnp sport = :" + port, "another port"}},
		{"192.0.2.1:0", unix.EADDRNOTAVAIL, 1, []string{"no network interface"}},
		{"unix://" + t.TempDir() + "/none/sock", unix.ENOENT, 1, []string{"mkdir -p", "/none"}},
		{"127.0.0.1", nil, 0, []string{"missing port", "give HOST:PORT"}},
		{"127.0.0.1:99999", nil, 0, []string{`port "99999"`, "to 65535"}},
		{"127.0.0.1:http-or-so", nil, 0, []string{`port "http-or-so"`}},
		{"sctp://127.0.0.1:1", nil, 0, []string{"sctp://", "give HOST:PORT"}},
		{"unix://", nil, 0, []string{"path is missing"}},
		{"unix:///" + strings.Repeat("x", 107), nil, 0, []string{"108 bytes", "limit of 107"}},
	} {
		tp := newTopic(100)
		_, err := NewIngress(t.Context(), Config{Listen: tc.address, NewLane: tp.newLane, Lanes: 1})
		if err == nil {
			t.Fatalf("listens on %s", tc.address)
		}
		if tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%v is not %v", err, tc.is)
		}
		for _, part := range append(tc.parts, "gateway: listen on "+tc.address) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("no %q in %v", part, err)
			}
		}
		if tp.closed != tc.lanes {
			t.Errorf("%s: %d lanes were closed, want %d", tc.address, tp.closed, tc.lanes)
		}
	}
}

func TestReasonNames(t *testing.T) {
	seen := make(map[string]bool)
	for why := range reasons {
		if name := why.String(); name == "" || seen[name] {
			t.Errorf("reason %d is called %q", why, name)
		} else {
			seen[name] = true
		}
	}
	for why, want := range map[reason]bool{running: false, endOfStream: false, stopped: false, frameTooLarge: true, acceptFailed: true, reasons: false} {
		if why.isError() != want {
			t.Errorf("%v is an error: %t", why, !want)
		}
	}
	if got := fmt.Sprint(reasons); got != fmt.Sprintf("reason %d", reasons) {
		t.Error(got)
	}
}
