package resp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

// hello changes the protocol: HELLO [2|3 [AUTH user password] [SETNAME name]].
func (c *conn) hello(b []byte, args []span) {
	proto := c.reply.proto
	if len(args) > 1 {
		n, err := strconv.Atoi(string(args[1].of(b)))
		switch {
		case err != nil:
			c.reply.failure("ERR Protocol version is not an integer or out of range")
			return
		case n != 2 && n != 3:
			c.reply.failure("NOPROTO unsupported protocol version")
			return
		}
		proto = n
	}
	name := c.name
	for i := 2; i < len(args); i++ {
		switch word := string(args[i].of(b)); {
		case strings.EqualFold(word, "AUTH") && i+2 < len(args):
			if !c.login(string(args[i+1].of(b)), string(args[i+2].of(b))) {
				return
			}
			i += 2
		case strings.EqualFold(word, "SETNAME") && i+1 < len(args):
			i++
			if name = string(args[i].of(b)); !c.mayBeNamed(name) {
				return
			}
		default:
			c.reply.failure(fmt.Sprintf("ERR Syntax error in HELLO option '%.128s'", word))
			return
		}
	}
	if c.access == nil {
		c.reply.failure("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	c.name, c.reply.proto = name, proto
	c.proto.Store(int32(proto))
	c.reply.dict(7)
	c.reply.bulk("server")
	c.reply.bulk("hugebus")
	c.reply.bulk("version")
	c.reply.bulk(redisVersion)
	c.reply.bulk("proto")
	c.reply.integer(proto)
	c.reply.bulk("id")
	c.reply.integer(int(c.number))
	c.reply.bulk("mode")
	c.reply.bulk("standalone")
	c.reply.bulk("role")
	c.reply.bulk("master")
	c.reply.bulk("modules")
	c.reply.array(0)
}

// mayBeNamed says whether a client may have such a name, or writes the failure: CLIENT INFO is a line of words.
func (c *conn) mayBeNamed(name string) bool {
	if strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' }) {
		c.reply.failure("ERR Client names cannot contain spaces, newlines or special characters.")
		return false
	}
	return true
}

// auth is AUTH [user] password.
func (c *conn) auth(b []byte, args []span) {
	switch {
	case len(args) != 2 && len(args) != 3:
		c.arity("auth")
		return
	case c.s.cfg.Rules == nil:
		c.reply.failure("ERR AUTH <password> called without any password configured: the gateway has no --access")
		return
	}
	user := ""
	if len(args) == 3 {
		user = string(args[1].of(b))
	}
	if c.login(user, string(args[len(args)-1].of(b))) {
		c.reply.simple("OK")
	}
}

// login says who the client is, or writes the failure.
func (c *conn) login(user, token string) bool {
	if c.s.cfg.Rules == nil {
		return true // everybody may do everything
	}
	access := c.s.cfg.Rules.Token(user, token)
	if access == nil {
		c.s.warnings.Warn("wrong_token", "a client does not know the token that it needs", peerAttr(c))
		c.s.denials.Add("auth")
		c.reply.failure("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	c.access = access
	c.bound()
	return true
}

// ping is PING [message].
func (c *conn) ping(b []byte, args []span) {
	text := ""
	if len(args) > 1 {
		text = string(args[1].of(b))
	}
	switch {
	case len(args) > 2:
		c.arity("ping")
	case c.listening():
		c.reply.array(2)
		c.reply.bulk("pong")
		c.reply.bulk(text)
	case len(args) == 2:
		c.reply.bulk(text)
	default:
		c.reply.simple("PONG")
	}
}

// reset makes the connection as it was at first.
func (c *conn) reset() {
	c.unsubscribeAll()
	c.name, c.reply.proto = "", 2
	c.proto.Store(2)
	if c.s.cfg.Rules == nil {
		c.access = door.Everything
	} else {
		c.access = nil
	}
	c.bound()
	c.reply.simple("RESET")
}

// client is CLIENT, in the parts that clients send when they connect.
func (c *conn) client(b []byte, args []span) {
	if len(args) < 2 {
		c.arity("client")
		return
	}
	switch word := strings.ToUpper(string(args[1].of(b))); word {
	case "SETNAME":
		if len(args) != 3 {
			c.arity("client|setname")
			return
		}
		if name := string(args[2].of(b)); c.mayBeNamed(name) {
			c.name = name
			c.reply.simple("OK")
		}
	case "SETINFO", "NO-EVICT", "NO-TOUCH":
		c.reply.simple("OK")
	case "GETNAME":
		if c.name == "" {
			c.reply.null()
			return
		}
		c.reply.bulk(c.name)
	case "ID":
		c.reply.integer(int(c.number))
	case "INFO":
		c.reply.bulk(fmt.Sprintf("id=%d addr=%s laddr=%s name=%s sub=%d psub=%d resp=%d user=%s\n", c.number, c.nc.RemoteAddr(), c.nc.LocalAddr(),
			c.name, len(c.channels), len(c.patterns), c.reply.proto, c.access.Name))
	default:
		c.reply.failure(fmt.Sprintf("ERR unknown subcommand '%.128s': use SETNAME, GETNAME, SETINFO, ID, INFO, NO-EVICT or NO-TOUCH", word))
	}
}

// pubsub is PUBSUB CHANNELS [pattern], NUMSUB [channel…] and NUMPAT. It tells of this gateway's subscribers.
func (c *conn) pubsub(b []byte, args []span) {
	if len(args) < 2 {
		c.arity("pubsub")
		return
	}
	subs := &c.s.subs
	subs.mu.RLock()
	defer subs.mu.RUnlock()
	switch word := strings.ToUpper(string(args[1].of(b))); {
	case word == "CHANNELS" && len(args) <= 3:
		pattern := "*"
		if len(args) == 3 {
			pattern = string(args[2].of(b))
		}
		var names []string
		for name := range subs.channels {
			if glob(pattern, name) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		c.reply.array(len(names))
		for _, name := range names {
			c.reply.bulk(name)
		}
	case word == "NUMSUB":
		c.reply.array(2 * (len(args) - 2))
		for _, a := range args[2:] {
			name := string(a.of(b))
			n := 0
			if all := subs.channels[name]; all != nil {
				n = len(all.members)
			}
			c.reply.bulk(name)
			c.reply.integer(n)
		}
	case word == "NUMPAT":
		c.reply.integer(len(subs.patterns))
	default:
		c.reply.failure(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s': use CHANNELS, NUMSUB or NUMPAT", word))
	}
}
