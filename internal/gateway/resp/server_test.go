package resp

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/gateway/door"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/ring"
)

func shared(c *Config) { c.Topic = "chat" }

func TestPublishAndSubscribe(t *testing.T) {
	for name, change := range map[string]func(*Config){"a topic for each channel": nil, "one topic for all": shared} {
		t.Run(name, func(t *testing.T) {
			r := start(t, change)
			sub, pub := r.dial(), r.dial()
			sub.send("*3\n$9\nSUBSCRIBE\n$4\nroom\n$4\nhall\n")
			sub.want("*3\n$9\nsubscribe\n$4\nroom\n:1\n*3\n$9\nsubscribe\n$4\nhall\n:2\n")
			pub.send("PUBLISH room hello\n*3\n$7\npublish\n$4\nhall\n$0\n\nPUBLISH else x\nPUBLISH room 2\nPING\n")
			pub.want(":1\n:1\n:0\n:1\n+PONG\n")
			if change == nil { // each topic has an order of its own
				var got []string
				for range 3 {
					sub.want("*3\n$7\nmessage\n$4\n")
					channel, _ := sub.r.ReadString('\n')
					_, _ = sub.r.ReadString('\n')
					payload, _ := sub.r.ReadString('\n')
					if got = append(got, strings.TrimSpace(channel)+" "+strings.TrimSpace(payload)); channel == "hall\r\n" {
						got = got[:len(got)-1]
					}
				}
				if fmt.Sprint(got) != "[room hello room 2]" {
					t.Errorf("room got %q", got)
				}
			} else {
				sub.want("*3\n$7\nmessage\n$4\nroom\n$5\nhello\n*3\n$7\nmessage\n$4\nhall\n$0\n\n*3\n$7\nmessage\n$4\nroom\n$1\n2\n")
			}
			sub.send("UNSUBSCRIBE room\nUNSUBSCRIBE\nUNSUBSCRIBE\nPING\n")
			sub.want("*3\n$11\nunsubscribe\n$4\nroom\n:1\n*3\n$11\nunsubscribe\n$4\nhall\n:0\n*3\n$11\nunsubscribe\n$-1\n:0\n+PONG\n")
			pub.send("PUBLISH room gone\n")
			pub.want(":0\n")
		})
	}
}

func TestTheBusSeesWhatClientsPublish(t *testing.T) {
	r := start(t, shared)
	src, err := r.bus.Subscribe(t.Context(), "chat")
	check(t, err)
	c := r.dial()
	c.send("PUBLISH room hello\n")
	c.want(":0\n")
	check(t, src.Wait(t.Context()))
	if _, err := src.Poll(1, func(f ring.Frame) error {
		if string(f.Payload) != "\x00\x04roomhello" {
			t.Errorf("frame %q", f.Payload)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	c.send("SUBSCRIBE room\n")
	c.want("*3\n$9\nsubscribe\n$4\nroom\n:1\n")
	r.bus.publish("chat", []byte("\x00\x04roomback"), []byte("\x00"), []byte("\xff\xffx"), []byte("\x00\x04room"))
	c.want("*3\n$7\nmessage\n$4\nroom\n$4\nback\n*3\n$7\nmessage\n$4\nroom\n$0\n\n")
	if s := r.Stats(); s.Malformed != 2 {
		t.Errorf("%+v", s)
	}
	check(t, src.Close())
}

func TestPatterns(t *testing.T) {
	for name, change := range map[string]func(*Config){"a topic for each channel": nil, "one topic for all": shared} {
		t.Run(name, func(t *testing.T) {
			r := start(t, change)
			sub, pub := r.dial(), r.dial()
			sub.send("PSUBSCRIBE news.*\nSUBSCRIBE news.art\n")
			sub.want("*3\n$10\npsubscribe\n$6\nnews.*\n:1\n*3\n$9\nsubscribe\n$8\nnews.art\n:2\n")
			pub.send("PUBLISH news.art a\n")
			pub.want(":2\n")
			sub.want("*3\n$7\nmessage\n$8\nnews.art\n$1\na\n*4\n$8\npmessage\n$6\nnews.*\n$8\nnews.art\n$1\na\n")
			pub.send("PUBLISH news.new b\nPUBLISH other c\n") // a topic that was not there when the pattern came
			pub.want(":1\n:0\n")
			sub.want("*4\n$8\npmessage\n$6\nnews.*\n$8\nnews.new\n$1\nb\n")
			pub.send("PUBSUB CHANNELS\nPUBSUB CHANNELS x*\nPUBSUB NUMSUB news.art none\nPUBSUB NUMPAT\nPUBSUB WHAT\n")
			pub.want("*1\n$8\nnews.art\n*0\n*4\n$8\nnews.art\n:1\n$4\nnone\n:0\n:1\n")
			pub.wantPrefix("-ERR unknown subcommand")
			sub.send("PUNSUBSCRIBE\n")
			sub.want("*3\n$12\npunsubscribe\n$6\nnews.*\n:1\n")
		})
	}
}

func TestATopicThatOthersMakeIsFoundByAPattern(t *testing.T) {
	r := start(t, nil)
	sub := r.dial()
	sub.send("PSUBSCRIBE new*\n")
	sub.want("*3\n$10\npsubscribe\n$4\nnew*\n:1\n")
	l, err := r.bus.Lane(t.Context(), "newer")
	check(t, err)
	testutil.Eventually(t, "the topic is read", func() bool { return r.Stats().Topics == 1 })
	r.bus.publish("newer", []byte("x"))
	sub.want("*4\n$8\npmessage\n$4\nnew*\n$5\nnewer\n$1\nx\n")
	check(t, l.Close())
}

func TestRESP3(t *testing.T) {
	r := start(t, shared)
	c := r.dial()
	c.send("HELLO 4\nHELLO 3 SETNAME me\n")
	c.want("-NOPROTO unsupported protocol version\n%7\n$6\nserver\n$7\nhugebus\n$7\nversion\n$5\n7.2.0\n$5\nproto\n:3\n$2\nid\n:1\n$4\nmode\n$10\nstandalone\n$4\nrole\n$6\nmaster\n$7\nmodules\n*0\n")
	c.send("CLIENT GETNAME\nSUBSCRIBE a\n")
	c.want("$2\nme\n>3\n$9\nsubscribe\n$1\na\n:1\n")
	c.send("PUBLISH a x\n") // a RESP3 connection may do all things at any time
	const reply, push = ":1\n", ">3\n$7\nmessage\n$1\na\n$1\nx\n"
	if first, err := c.r.Peek(1); err == nil && first[0] == '>' { // either may be first
		c.want(push + reply)
	} else {
		c.want(reply + push)
	}
	c.send("PING\nPUNSUBSCRIBE\nHELLO\n")
	c.want("+PONG\n>3\n$12\npunsubscribe\n_\n:1\n%7\n")
}

func TestCommandsThatClientsSend(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	c.send("CLIENT SETINFO LIB-NAME x\nCLIENT ID\nCLIENT GETNAME\nCLIENT SETNAME n\nCLIENT KILL\nCOMMAND INFO get\nCOMMAND INFO publish\nCOMMAND COUNT\nCOMMAND DOCS\nCONFIG GET SAVE x\nCONFIG SET save x\nSELECT 0\nSELECT 1\nECHO hi\nGET x\nPUBLISH x\nSUBSCRIBE\nAUTH x\nPING a\n")
	c.want("+OK\n:1\n$-1\n+OK\n")
	c.wantPrefix("-ERR unknown subcommand 'KILL'")
	c.want(fmt.Sprintf("*1\n*-1\n*1\n*7\n$7\npublish\n:3\n*4\n+pubsub\n+loading\n+stale\n+fast\n:0\n:0\n:0\n*1\n+@pubsub\n:%d\n*0\n*2\n$4\nsave\n$0\n\n-ERR only CONFIG GET is known: the gateway's settings are its flags\n+OK\n-ERR DB index is out of range\n$2\nhi\n", len(known)))
	c.wantPrefix("-ERR unknown command 'GET'")
	c.want("-ERR wrong number of arguments for 'publish' command\n-ERR wrong number of arguments for 'subscribe' command\n")
	c.wantPrefix("-ERR AUTH <password> called without any password")
	c.want("$1\na\n")
	c.send("INFO\nCLIENT INFO\n")
	c.wantPrefix("$")
	for {
		line, err := c.r.ReadString('\n')
		check(t, err)
		if strings.HasPrefix(line, "id=1 ") {
			break
		}
	}
	c.want("\n")
	c.send("SUBSCRIBE a\nGET x\nPUBLISH a b\nPING\nPING x\nRESET\nQUIT\n")
	c.want("*3\n$9\nsubscribe\n$1\na\n:1\n")
	c.wantPrefix("-ERR Can't execute 'get'")
	c.wantPrefix("-ERR Can't execute 'publish'")
	c.want("*2\n$4\npong\n$0\n\n*2\n$4\npong\n$1\nx\n+RESET\n+OK\n")
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("after QUIT: %v", err)
	}
}

func TestChannelsThatAreNoTopics(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	c.send("SUBSCRIBE a:b\nPUBLISH a:b x\nPUBLISH ok y\n")
	c.wantPrefix("-ERR channel 'a:b' is no topic: no name of a topic: bad name (--resp-topic")
	c.wantPrefix("-ERR channel 'a:b' is no topic: no name of a topic: bad name (--resp-topic")
	c.want(":0\n")
}

func TestLimits(t *testing.T) {
	r := start(t, func(c *Config) {
		c.Topic, c.MaxChannels, c.MaxFrame, c.MaxConns = "chat", 2, 200_000, 3
	})
	c := r.dial()
	c.send("SUBSCRIBE a b c\n")
	c.want("*3\n$9\nsubscribe\n$1\na\n:1\n*3\n$9\nsubscribe\n$1\nb\n:2\n")
	c.wantPrefix("-ERR 2 channels and patterns, and that is the limit of a connection: raise --max-channels")
	big := r.dial()
	big.send("*3\n$7\nPUBLISH\n$1\na\n$150000\n" + strings.Repeat("x", 150_000) + "\n")
	big.wantPrefix("-ERR a message of 150003 bytes is above the limit of 100000 bytes")
	big.send("PUBLISH a ok\n*3\n$7\nPUBLISH\n$1\na\n$2147483647\n")
	big.want(":1\n")
	big.wantPrefix("-ERR Protocol error: an argument of 2147483647 bytes is above the limit of 200000: raise --max-frame")
	if _, err := big.r.ReadByte(); err != io.EOF {
		t.Errorf("after a protocol error: %v", err)
	}
	testutil.Eventually(t, "it has gone", func() bool { return r.Stats().Open == 1 })
	r.dial()
	r.dial()
	testutil.Eventually(t, "three are there", func() bool { return r.Stats().Open == 3 })
	if _, err := r.dial().r.ReadByte(); err == nil {
		t.Error("one connection too many")
	}
	s := r.Stats()
	if s.Ends[refused] != 1 || s.Ends[tooLarge] != 1 || s.Denials["channels"] != 1 || !strings.Contains(r.log.String(), "--max-conns") || !strings.Contains(r.log.String(), "--max-frame") || !strings.Contains(r.log.String(), "--max-channels") {
		t.Errorf("%+v", s)
	}
}

// TestLongCommandsComeInPieces sends a message that is larger than any buffer, byte by byte at its ends.
func TestLongCommandsComeInPieces(t *testing.T) {
	r := start(t, shared)
	sub, pub := r.dial(), r.dial()
	sub.send("SUBSCRIBE a\n")
	sub.want("*3\n$9\nsubscribe\n$1\na\n:1\n")
	payload := strings.Repeat("0123456789", 9990)
	stream := fmt.Sprintf("*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n$%d\r\n%s\r\n", len(payload), payload)
	for i := range 40 {
		_, err := pub.Write([]byte{stream[i]})
		check(t, err)
	}
	for at := 40; at < len(stream); at += 7001 {
		_, err := io.WriteString(pub, stream[at:min(at+7001, len(stream))])
		check(t, err)
	}
	pub.want(":1\n")
	sub.want(fmt.Sprintf("*3\n$7\nmessage\n$1\na\n$%d\n%s\n", len(payload), payload))
}

func TestTimeouts(t *testing.T) {
	r := start(t, func(c *Config) { c.IdleTimeout, c.PartialTimeout = 50*time.Millisecond, 60*time.Millisecond })
	idle, torn, sub := r.dial(), r.dial(), r.dial()
	sub.send("SUBSCRIBE a\n")
	torn.send("*1\n$4\nPI")
	for _, c := range []*client{idle, torn} {
		if _, err := c.r.ReadByte(); err == nil {
			t.Error("it was sent something")
		}
	}
	testutil.Eventually(t, "both have ended", func() bool { s := r.Stats(); return s.Ends[idleTimeout] == 1 && s.Ends[partialTimeout] == 1 })
	for _, want := range []string{"--idle-timeout 50ms", "--partial-timeout 60ms"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log does not name %s", want)
		}
	}
	sub.want("*3\n$9\nsubscribe\n$1\na\n:1\n")
	r.bus.publish("a", []byte("x"))
	sub.want("*3\n$7\nmessage\n$1\na\n$1\nx\n")
}

func TestSlowSubscriberIsClosed(t *testing.T) {
	r := start(t, func(c *Config) { c.Topic, c.MaxLag = "chat", 256<<10; c.Socket.SendBuffer = 8 << 10 })
	slow, quick, pub := r.dial(), r.dial(), r.dial()
	for _, c := range []*client{slow, quick} {
		c.send("SUBSCRIBE a\n")
		c.want("*3\n$9\nsubscribe\n$1\na\n:1\n")
	}
	payload := strings.Repeat("x", 10_000)
	testutil.Eventually(t, "the slow one is closed", func() bool {
		pub.send("PUBLISH a " + payload + "\n")
		pub.wantPrefix(":")
		quick.want("*3\n$7\nmessage\n$1\na\n$10000\n" + payload + "\n")
		return r.Stats().Ends[tooSlow] == 1
	})
	if !strings.Contains(r.log.String(), "--max-lag") {
		t.Error("the log does not name the limit")
	}
	pub.send("PUBLISH a x\n")
	pub.want(":1\n")
}

// TestMemoryOfQuietChannelsIsBounded has a client that takes nothing of a channel with few messages among many others.
func TestMemoryOfQuietChannelsIsBounded(t *testing.T) {
	r := start(t, func(c *Config) { c.Topic, c.MaxMemory = "chat", 1<<20; c.Socket.SendBuffer = 4 << 10 })
	slow, busy, pub := r.dial(), r.dial(), r.dial()
	slow.send("SUBSCRIBE quiet\n")
	slow.want("*3\n$9\nsubscribe\n$5\nquiet\n:1\n")
	busy.send("SUBSCRIBE busy\n")
	busy.want("*3\n$9\nsubscribe\n$4\nbusy\n:1\n")
	payload := strings.Repeat("x", 40_000)
	testutil.Eventually(t, "the slow one is closed", func() bool {
		pub.send("PUBLISH quiet " + payload + "\nPUBLISH busy " + payload + "\n")
		pub.wantPrefix(":")
		pub.wantPrefix(":")
		busy.want("*3\n$7\nmessage\n$4\nbusy\n$40000\n" + payload + "\n")
		return r.Stats().Ends[tooSlow] == 1
	})
	if !strings.Contains(r.log.String(), "--max-memory") {
		t.Error("the log does not name the limit")
	}
}

func TestClientThatReadsNoRepliesIsClosed(t *testing.T) {
	r := start(t, func(c *Config) { c.MaxPipeline = 1000; c.Socket.SendBuffer = 4 << 10 })
	c := r.dial()
	check(t, c.Conn.(*net.TCPConn).SetReadBuffer(4<<10))
	go func() {
		for range 100_000 {
			if _, err := io.WriteString(c, strings.Repeat("PING xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", 100)); err != nil {
				return
			}
		}
	}()
	testutil.Eventually(t, "it is closed", func() bool { return r.Stats().Ends[pipeline] == 1 })
	if !strings.Contains(r.log.String(), "--max-pipeline") {
		t.Error("the log does not name the limit")
	}
	_ = c.Close()
}

func TestAccess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access")
	check(t, os.WriteFile(file, []byte("# who\n\nalice token=s3cret publish=orders.*,x subscribe=*\nbob token=hunter2 subscribe=orders.a\n"), 0o600))
	rules, err := door.ReadRules(file)
	check(t, err)
	r := start(t, func(c *Config) { c.Topic, c.Rules = "chat", rules })
	alice, bob := r.dial(), r.dial()
	alice.send("PUBLISH x y\nHELLO 3\nAUTH wrong\nAUTH bob s3cret\nAUTH alice s3cret\nPUBLISH orders.a/b y\nPUBLISH z y\n")
	alice.wantPrefix("-NOAUTH")
	alice.wantPrefix("-NOAUTH")
	alice.wantPrefix("-WRONGPASS")
	alice.wantPrefix("-WRONGPASS")
	alice.want("+OK\n:0\n")
	alice.wantPrefix("-NOPERM alice may not publish to channel 'z'")
	bob.send("HELLO 2 AUTH default hunter2\n")
	bob.want("*14\n")
	for range 21 - 2 {
		bob.wantPrefix("")
	}
	bob.send("PUBLISH x y\nSUBSCRIBE orders.b orders.a\n")
	for {
		line, err := bob.r.ReadString('\n')
		check(t, err)
		if strings.HasPrefix(line, "-NOPERM") {
			break
		}
	}
	bob.wantPrefix("-NOPERM bob may not subscribe to 'orders.b'")
	bob.want("*3\n$9\nsubscribe\n$8\norders.a\n:1\n")
	if s := r.Stats(); s.Denials["auth"] != 2 || s.Denials["publish"] != 2 || s.Denials["subscribe"] != 1 {
		t.Errorf("%+v", s.Denials)
	}
}

// TestAFullTopicHoldsPublishersUp stops while a publish waits for room.
func TestAFullTopicHoldsPublishersUp(t *testing.T) {
	r := start(t, func(c *Config) { c.Topic, c.DrainTimeout = "chat", 50*time.Millisecond })
	r.bus.mu.Lock()
	r.bus.full = make(chan struct{})
	r.bus.mu.Unlock()
	c, other := r.dial(), r.dial()
	c.send("PUBLISH a b\n")
	other.send("PING\n")
	other.want("+PONG\n")
	r.bus.mu.Lock()
	close(r.bus.full)
	r.bus.full = nil
	r.bus.mu.Unlock()
	c.want(":0\n")
	r.bus.mu.Lock()
	r.bus.full = make(chan struct{})
	r.bus.mu.Unlock()
	c.send("PUBLISH a b\n")
	testutil.Eventually(t, "it waits", func() bool { return r.Stats().Commands == 3 })
	r.stop()
	if s := r.Stats(); s.GivenUp != 1 || s.Published != 1 || s.Backpressure < 50*time.Millisecond || !strings.Contains(r.log.String(), "given_up=1 ") {
		t.Errorf("%+v", s)
	}
}

func TestReadingGoesOnAfterAFailure(t *testing.T) {
	r := start(t, nil)
	c := r.dial()
	c.send("SUBSCRIBE a\n")
	c.want("*3\n$9\nsubscribe\n$1\na\n:1\n")
	r.bus.mu.Lock()
	old := r.bus.topics["a"][0]
	old.err = io.ErrUnexpectedEOF
	old.ring()
	r.bus.mu.Unlock()
	testutil.Eventually(t, "the topic is read anew", func() bool {
		r.bus.mu.Lock()
		defer r.bus.mu.Unlock()
		return len(r.bus.topics["a"]) == 1 && r.bus.topics["a"][0] != old
	})
	r.bus.publish("a", []byte("x"))
	c.want("*3\n$7\nmessage\n$1\na\n$1\nx\n")
}
