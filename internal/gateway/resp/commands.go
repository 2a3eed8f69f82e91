package resp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

const maxCommandName = 16

// execute executes the commands in b, and returns how many bytes it took, and how many the next one has at least.
func (c *conn) execute(b []byte) (used, need int, err error) {
	for {
		args, n, need, err := c.parser.next(b[used:])
		if err != nil || n == 0 {
			return used, need, err
		}
		command := b[used : used+n]
		used += n
		if len(args) == 0 {
			continue
		}
		c.unread++
		c.s.commands.Add(1)
		if err := c.dispatch(command, args); err != nil {
			return used, 0, err
		}
		if len(c.reply.b) >= maxReplies {
			if err := c.flush(); err != nil {
				return used, 0, err
			}
		}
	}
}

// dispatch executes one command. An error ends the connection.
func (c *conn) dispatch(b []byte, args []span) error {
	var upper [maxCommandName]byte
	name := args[0].of(b)
	if len(name) > maxCommandName {
		name = name[:maxCommandName]
	}
	for i, ch := range name {
		if 'a' <= ch && ch <= 'z' {
			ch -= 'a' - 'A'
		}
		upper[i] = ch
	}
	word := upper[:len(name)]
	if string(word) == "PUBLISH" && c.access != nil && !c.listening() {
		c.publish(b, args)
		return nil
	}
	c.publishPending() // replies keep their order
	if isHTTP(string(word), b, args) {
		return errForeign
	}
	switch string(word) {
	case "HELLO":
		c.hello(b, args)
		return nil
	case "AUTH":
		c.auth(b, args)
		return nil
	case "QUIT":
		c.reply.simple("OK")
		return errQuit
	}
	if c.access == nil {
		c.reply.failure("NOAUTH Authentication required.")
		return nil
	}
	switch string(word) {
	case "SUBSCRIBE":
		return c.subscribe(b, args, false)
	case "PSUBSCRIBE":
		return c.subscribe(b, args, true)
	case "UNSUBSCRIBE":
		c.unsubscribe(b, args, false)
		return nil
	case "PUNSUBSCRIBE":
		c.unsubscribe(b, args, true)
		return nil
	case "PING":
		c.ping(b, args)
		return nil
	case "RESET":
		c.reset()
		return nil
	}
	if c.listening() {
		c.reply.failure(fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
			strings.ToLower(string(word))))
		return nil
	}
	c.other(string(word), b, args)
	return nil
}

// isHTTP says whether this is a line of an HTTP request: then what follows, such as a body that reads like a command, is a browser's
// that somebody has sent here, and must not be executed.
func isHTTP(word string, b []byte, args []span) bool {
	switch word {
	case "POST", "HOST:":
		return true
	case "GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE":
		return len(args) == 3 && bytes.HasPrefix(args[2].of(b), []byte("HTTP/"))
	}
	return false
}

// listening says whether this is a RESP2 connection that has subscribed: there, what is pushed cannot be told from replies.
func (c *conn) listening() bool {
	return c.reply.proto == 2 && len(c.channels)+len(c.patterns) > 0
}

// other executes what is neither publishing nor subscribing.
func (c *conn) other(word string, b []byte, args []span) {
	switch word {
	case "PUBLISH":
		c.publish(b, args)
	case "PUBSUB":
		c.pubsub(b, args)
	case "CLIENT":
		c.client(b, args)
	case "COMMAND":
		c.command(b, args)
	case "CONFIG":
		c.config(b, args)
	case "ECHO":
		if len(args) != 2 {
			c.arity(word)
			return
		}
		c.reply.bulk(string(args[1].of(b)))
	case "SELECT":
		if len(args) == 2 && string(args[1].of(b)) == "0" {
			c.reply.simple("OK")
			return
		}
		c.reply.failure("ERR DB index is out of range")
	case "INFO":
		c.reply.bulk(c.s.info())
	default:
		c.reply.failure(fmt.Sprintf("ERR unknown command '%.128s': this is a message bus: it knows %s", args[0].of(b), knownNames))
	}
}

func (c *conn) arity(word string) {
	c.reply.failure(fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(word)))
}

// publish takes a frame up, to be published with others that come with it.
func (c *conn) publish(b []byte, args []span) {
	if len(args) != 3 {
		c.publishPending()
		c.arity("publish")
		return
	}
	p := &c.pending
	channel := args[1].of(b)
	receivers := c.s.subs.receivers(channel)
	frame, err := c.frame(b, args, channel)
	if err != nil {
		c.publishPending()
		c.reply.failure(err.Error())
		return
	}
	p.frames = append(p.frames, frame)
	p.receivers = append(p.receivers, receivers)
}

// frame is what PUBLISH publishes, and has pending's outlet be where. Errors are as the client gets them.
func (c *conn) frame(b []byte, args []span, channel []byte) ([]byte, error) {
	if c.access != door.Everything && !c.access.MayPublish(string(channel)) {
		c.s.denials.Add("publish")
		return nil, fmt.Errorf("NOPERM %s may not publish to channel '%s': see publish= in --access", c.access.Name, channel)
	}
	p, shared := &c.pending, c.s.cfg.Topic != ""
	if len(p.frames) == cap(p.frames) || p.outlet != nil && !shared && p.outlet.topic != string(channel) {
		c.publishPending()
	}
	if p.outlet == nil {
		topic := c.s.cfg.Topic
		if !shared {
			topic = string(channel)
		}
		var err error
		if p.outlet, err = c.s.acquire(c.s.hard, topic); err != nil {
			if c.s.hard.Err() != nil {
				c.s.givenUp.Add(1)
			}
			return nil, c.s.unreachable(string(channel), err)
		}
	}
	frame := args[2].of(b)
	if shared {
		var ok bool
		if frame, ok = joinFrame(b, args[1], args[2]); !ok {
			return nil, fmt.Errorf("ERR a channel's name of %d bytes is above the limit of 65535", len(channel))
		}
	}
	if len(frame) > p.outlet.max {
		return nil, fmt.Errorf("ERR %w", tooLargeFor(p.outlet, frame))
	}
	return frame, nil
}

// unreachable is what a client is told of a channel whose topic cannot be attached to.
func (s *Server) unreachable(channel string, err error) error {
	if errors.Is(err, ErrNoTopic) && s.cfg.Topic == "" {
		return fmt.Errorf("ERR channel '%s' is no topic: %w (--resp-topic takes channels of any name)", channel, err)
	}
	return fmt.Errorf("ERR channel '%s': %s", channel, plain(err))
}

// plain is an error without the name of the package that it comes from, which means nothing to a client.
func plain(err error) string { return strings.TrimPrefix(fmt.Sprint(err), "client: ") }

// subscribe subscribes to channels, or patterns.
func (c *conn) subscribe(b []byte, args []span, pattern bool) error {
	if len(args) < 2 {
		c.arity(string(args[0].of(b)))
		return nil
	}
	mine, all, word := &c.channels, c.s.subs.channels, "subscribe"
	if pattern {
		mine, all, word = &c.patterns, c.s.subs.patterns, "psubscribe"
	}
	for _, a := range args[1:] {
		name := string(a.of(b))
		// What is to be said before comes before.
		if err := c.flush(); err != nil {
			return err
		}
		_, again := (*mine)[name]
		switch {
		case again:
			c.confirm(word, name)
		case c.access != door.Everything && !c.access.MaySubscribe(name):
			c.s.denials.Add("subscribe")
			c.reply.failure(fmt.Sprintf("NOPERM %s may not subscribe to '%s': see subscribe= in --access", c.access.Name, name))
		case len(c.channels)+len(c.patterns) >= c.s.cfg.MaxChannels:
			text := fmt.Sprintf("%d channels and patterns, and that is the limit of a connection: raise --max-channels", c.s.cfg.MaxChannels)
			c.s.warnings.Warn("channels", "a client wants too many channels", peerAttr(c), slog.String("error", text))
			c.s.denials.Add("channels")
			c.reply.failure("ERR " + text)
		default:
			if *mine == nil {
				*mine = make(map[string]struct{})
			}
			if err := c.s.join(name, pattern, func() {
				(*mine)[name] = struct{}{}
				all.add(name, c)
				c.confirm(word, name)
				c.out.SendBytes(c.reply.b) // before the first message, which cannot come meanwhile
				c.reply.b = c.reply.b[:0]
			}); err != nil {
				c.reply.failure(c.s.unreachable(name, err).Error())
			}
		}
	}
	return nil
}

// join sees to it that what a new subscription is about is read, and then calls add while nothing is dispatched.
func (s *Server) join(name string, pattern bool, add func()) error {
	h := hope{name, pattern}
	s.subs.expect(h)
	if err := s.openFor(name, pattern); err != nil {
		s.subs.settle(h, nil)
		s.closeHubs()
		return err
	}
	s.subs.settle(h, add)
	return nil
}

// openFor makes sure that what a new subscription is about is read.
func (s *Server) openFor(name string, pattern bool) error {
	switch {
	case s.cfg.Topic != "":
		return s.openHub(s.cfg.Topic)
	case pattern:
		return s.openMatching()
	}
	return s.openHub(name)
}

func (c *conn) confirm(word, name string) {
	c.reply.push(3)
	c.reply.bulk(word)
	c.reply.bulk(name)
	c.reply.integer(len(c.channels) + len(c.patterns))
}

// unsubscribe ends subscriptions: to all channels, or patterns, if none is named.
func (c *conn) unsubscribe(b []byte, args []span, pattern bool) {
	mine, all, word := c.channels, c.s.subs.channels, "unsubscribe"
	if pattern {
		mine, all, word = c.patterns, c.s.subs.patterns, "punsubscribe"
	}
	var names []string
	for _, a := range args[1:] {
		names = append(names, string(a.of(b)))
	}
	if len(args) == 1 {
		for name := range mine {
			names = append(names, name)
		}
		slices.Sort(names)
		if len(names) == 0 {
			c.reply.push(3)
			c.reply.bulk(word)
			c.reply.null()
			c.reply.integer(len(c.channels) + len(c.patterns))
			return
		}
	}
	for _, name := range names {
		if _, ok := mine[name]; ok {
			delete(mine, name)
			c.s.subs.mu.Lock()
			all.remove(name, c)
			c.s.subs.mu.Unlock()
		}
		c.confirm(word, name)
	}
	c.s.closeHubs()
}

// unsubscribeAll ends all subscriptions, without a word.
func (c *conn) unsubscribeAll() {
	if len(c.channels)+len(c.patterns) == 0 {
		return
	}
	c.s.subs.mu.Lock()
	for name := range c.channels {
		c.s.subs.channels.remove(name, c)
	}
	for name := range c.patterns {
		c.s.subs.patterns.remove(name, c)
	}
	c.s.subs.mu.Unlock()
	c.channels, c.patterns = nil, nil
	c.s.closeHubs()
}
