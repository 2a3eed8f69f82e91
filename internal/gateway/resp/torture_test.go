package resp

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/testutil"
)

func sortedLines(s string) string { return strings.Join(slices.Sorted(strings.Lines(s)), "") }

// pair is a subscriber and a publisher that must notice nothing of what others do.
type pair struct {
	sub, pub *client
	n        int
}

func (r *rig) pair() *pair {
	p := &pair{sub: r.dial(), pub: r.dial()}
	p.sub.send("SUBSCRIBE others\n")
	p.sub.want("*3\n$9\nsubscribe\n$6\nothers\n:1\n")
	return p
}

// talk sends and gets some messages.
func (p *pair) talk() {
	for range 50 {
		text := fmt.Sprintf("%08d", p.n)
		p.n++
		p.pub.send("PUBLISH others " + text + "\n")
		p.pub.want(":1\n")
		p.sub.want("*3\n$7\nmessage\n$6\nothers\n$8\n" + text + "\n")
	}
}

func TestATopicThatCannotBeReachedHoldsNobodyElseUp(t *testing.T) {
	r := start(t, func(c *Config) { c.DrainTimeout = 50 * time.Millisecond })
	others := r.pair()
	for _, text := range []string{"SUBSCRIBE stuck\n", "PUBLISH stuck x\n", "SUBSCRIBE stuck\n"} {
		r.dial().send(text)
	}
	testutil.Eventually(t, "they wait", func() bool { return r.Stats().Commands >= 4 })
	others.talk()
	c := r.dial()
	c.send("SUBSCRIBE a\nUNSUBSCRIBE a\nPUBLISH b x\n")
	c.want("*3\n$9\nsubscribe\n$1\na\n:1\n*3\n$11\nunsubscribe\n$1\na\n:0\n:0\n")
	r.stop()
}

func TestAPatternLeavesOutWhatCannotBeRead(t *testing.T) {
	r := start(t, nil)
	c, pub := r.dial(), r.dial()
	pub.send("PUBLISH forbidden x\nPUBLISH fine x\n")
	pub.want(":0\n:0\n")
	c.send("PSUBSCRIBE f*\nSUBSCRIBE forbidden\n")
	c.want("*3\n$10\npsubscribe\n$2\nf*\n:1\n")
	c.wantPrefix("-ERR channel 'forbidden'")
	pub.send("PUBLISH fine y\nPUBLISH forbidden y\n")
	pub.want(":1\n:1\n")
	c.want("*4\n$8\npmessage\n$2\nf*\n$4\nfine\n$1\ny\n")
	if !strings.Contains(r.log.String(), "topic=forbidden") {
		t.Error("the log does not name the topic")
	}
}

// TestNothingComesTwice has a client leave and come back all the time: what it gets while it is there has no gap and no double.
func TestNothingComesTwice(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				r.bus.publish("a", []byte(strconv.Itoa(n)))
				if n%64 == 0 {
					time.Sleep(50 * time.Microsecond)
				}
			}
		}
	})
	last := -1
	for range 300 {
		c.send("SUBSCRIBE a\n")
		c.want("*3\n$9\nsubscribe\n$1\na\n:1\n")
		first := true
		c.send("UNSUBSCRIBE a\n")
		for {
			c.want("*3\n")
			kind, _ := c.r.ReadString('\n')
			if kind == "$11\r\n" {
				c.want("unsubscribe\n$1\na\n:0\n")
				break
			}
			c.want("message\n$1\na\n")
			c.wantPrefix("$")
			text, _ := c.r.ReadString('\n')
			n, err := strconv.Atoi(strings.TrimSpace(text))
			if err != nil || n <= last || !first && n != last+1 {
				t.Errorf("message %q after %d", text, last)
			}
			last, first = n, false
		}
	}
	close(stop)
	publishing.Wait()
}

// TestStopWhileClientsComeAndGo subscribes to ever new channels while the server stops.
func TestStopWhileClientsComeAndGo(t *testing.T) {
	r := start(t, func(c *Config) { c.DrainTimeout = time.Second })
	var busy sync.WaitGroup
	for k := range 4 {
		c := r.dial()
		busy.Go(func() {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			for n := 0; ; n++ {
				if _, err := fmt.Fprintf(c, "SUBSCRIBE c%d.%d\r\nPUBLISH c%d.%d x\r\nUNSUBSCRIBE\r\n", k, n, k, n); err != nil {
					return
				}
			}
		})
	}
	testutil.Eventually(t, "they are at it", func() bool { return r.Stats().Commands > 300 })
	r.stop()
	busy.Wait()
}

// TestAByteAtATime has a command come so slowly that it never ends, each byte well within the time-out.
func TestAByteAtATime(t *testing.T) {
	r := start(t, func(c *Config) { c.PartialTimeout = 300 * time.Millisecond })
	others := r.pair()
	c := r.dial()
	go func() {
		for {
			if _, err := io.WriteString(c, "x"); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	testutil.Eventually(t, "it is closed", func() bool { others.talk(); return r.Stats().Ends[partialTimeout] == 1 })
	if !strings.Contains(r.log.String(), "--partial-timeout 300ms") {
		t.Error("the log does not name the limit")
	}
}

func TestStrangersGetLittleTimeAndMemory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access")
	check(t, os.WriteFile(file, []byte("alice token=s3cret publish=* subscribe=*\n"), 0o600))
	rules, err := door.ReadRules(file)
	check(t, err)
	r := start(t, func(c *Config) { c.Topic, c.Rules, c.HandshakeTimeout = "chat", rules, 500*time.Millisecond })
	big, silent, alice := r.dial(), r.dial(), r.dial()
	alice.send("AUTH s3cret\n")
	alice.want("+OK\n")
	big.send("*2\n$4\nAUTH\n$100000\n")
	big.wantPrefix("-ERR Protocol error: an argument of 100000 bytes is above the limit of 16384: authenticate first (AUTH)")
	if _, err := silent.r.ReadByte(); err == nil {
		t.Error("it was sent something")
	}
	testutil.Eventually(t, "it is counted", func() bool { return r.Stats().Ends[handshake] == 1 })
	if !strings.Contains(r.log.String(), "--handshake-timeout 500ms") {
		t.Error("the log does not name the limit")
	}
	alice.send("*3\n$7\nPUBLISH\n$1\na\n$50000\n" + strings.Repeat("x", 50_000) + "\n")
	alice.want(":0\n")
}

// TestCommandsThatNeverEndHaveBoundedMemory has many clients that send most of a large command.
func TestCommandsThatNeverEndHaveBoundedMemory(t *testing.T) {
	r := start(t, func(c *Config) { c.Topic, c.MaxMemory, c.MaxFrame = "chat", 1<<20, 400_000 })
	others := r.pair()
	for range 8 {
		c := r.dial()
		go func() {
			_, _ = io.WriteString(c, "*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n$400000\r\n"+strings.Repeat("x", 390_000))
		}()
	}
	testutil.Eventually(t, "some are closed", func() bool {
		others.talk()
		s := r.Stats()
		if s.PartialBytes > 1<<20 {
			t.Fatalf("%d bytes", s.PartialBytes)
		}
		return s.Ends[tooMuchMemory] >= 4
	})
	if !strings.Contains(r.log.String(), "--max-memory") {
		t.Error("the log does not name the limit")
	}
}

// TestGarbage sends random bytes, some of which begin well, and breaks connections in the middle of commands.
func TestGarbage(t *testing.T) {
	r := start(t, shared)
	others := r.pair()
	rng := rand.New(rand.NewPCG(1, uint64(testutil.Seed(t))))
	starts := []string{"", "*", "*3\r\n$7\r\nPUBLISH\r\n$", "*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n$2147483647\r\n", "*1\r\n$-5\r\n", "SUBSCRIBE \x00\xff *[\r\n", "\x16\x03\x01\x02\x00\x01"}
	for n := range 60 {
		c := r.dial()
		junk := make([]byte, rng.IntN(3000))
		for i := range junk {
			junk[i] = byte(rng.Uint32())
		}
		_, _ = c.Write(append([]byte(starts[rng.IntN(len(starts))]), junk...)) // it may be closed meanwhile
		if n%2 == 0 {
			check(t, c.Conn.(*net.TCPConn).SetLinger(0)) // RST
			check(t, c.Close())
		} else {
			check(t, c.Conn.(*net.TCPConn).CloseWrite())
			_, _ = io.Copy(io.Discard, c.r) // it ends with a reset where the gateway has not read everything
		}
		if n%10 == 0 {
			others.talk()
		}
	}
	testutil.Eventually(t, "all have gone", func() bool { return r.Stats().Open == 2 })
	if s := r.Stats(); s.Ends[protocolBroken] == 0 || !strings.Contains(r.log.String(), "Protocol error") {
		t.Errorf("%+v", s.Ends)
	}
	others.talk()
}

// TestHalfCloseIsAnswered closes the sending side right behind a long pipeline: every command is executed, and every reply comes.
func TestHalfCloseIsAnswered(t *testing.T) {
	r := start(t, shared)
	c := r.dial()
	const n = 5000
	go func() {
		_, _ = io.WriteString(c, strings.Repeat("PUBLISH a x\r\n", n)+"*1\r\n$4\r\nPI")
		_ = c.Conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c.r)
	if err != nil || !bytes.Equal(got, bytes.Repeat([]byte(":0\r\n"), n)) {
		t.Errorf("%d bytes of replies, %v", len(got), err)
	}
	if s := r.Stats(); s.Published != n {
		t.Errorf("%d published", s.Published)
	}
}

// TestThePortIsFreeAfterARestart stops and starts on one port while a client is there.
func TestThePortIsFreeAfterARestart(t *testing.T) {
	listen := "127.0.0.1:0"
	for range 3 {
		r := start(t, func(c *Config) { c.Topic, c.Listen = "chat", listen })
		listen = r.Addr().String()
		c := r.dial()
		c.send("SUBSCRIBE a\n")
		c.want("*3\n$9\nsubscribe\n$1\na\n:1\n")
		r.stop()
		if _, err := c.r.ReadByte(); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
	}
}
