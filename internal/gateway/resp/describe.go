package resp

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// redisVersion is what clients are told that want to know what they can use: the last Redis before the gateway's commands
// changed for the last time.
const redisVersion = "7.2.0"

// command is what COMMAND tells of one: how many arguments it takes, its name included (negative: at least), and its flags.
type command struct {
	name  string
	arity int
	flags []string
	group string
}

// known are the commands that there are, by name.
var known = []command{
	{"auth", -2, []string{"noscript", "loading", "stale", "fast", "no_auth"}, "@connection"},
	{"client", -2, []string{"noscript", "loading", "stale"}, "@connection"},
	{"command", -1, []string{"loading", "stale"}, "@connection"},
	{"config", -2, []string{"noscript", "loading", "stale"}, "@admin"},
	{"echo", 2, []string{"loading", "stale", "fast"}, "@connection"},
	{"hello", -1, []string{"noscript", "loading", "stale", "fast", "no_auth"}, "@connection"},
	{"info", -1, []string{"loading", "stale"}, "@admin"},
	{"ping", -1, []string{"fast"}, "@connection"},
	{"psubscribe", -2, []string{"pubsub", "noscript", "loading", "stale"}, "@pubsub"},
	{"publish", 3, []string{"pubsub", "loading", "stale", "fast"}, "@pubsub"},
	{"pubsub", -2, []string{"pubsub", "loading", "stale"}, "@pubsub"},
	{"punsubscribe", -1, []string{"pubsub", "noscript", "loading", "stale"}, "@pubsub"},
	{"quit", -1, []string{"noscript", "loading", "stale", "fast", "no_auth"}, "@connection"},
	{"reset", 1, []string{"noscript", "loading", "stale", "fast", "no_auth"}, "@connection"},
	{"select", 2, []string{"loading", "stale", "fast"}, "@connection"},
	{"subscribe", -2, []string{"pubsub", "noscript", "loading", "stale"}, "@pubsub"},
	{"unsubscribe", -1, []string{"pubsub", "noscript", "loading", "stale"}, "@pubsub"},
}

var knownNames = func() string {
	var names []string
	for _, k := range known {
		names = append(names, strings.ToUpper(k.name))
	}
	return strings.Join(names, ", ")
}()

// command is COMMAND, COMMAND COUNT, LIST, INFO [name…] and DOCS, of which the last has nothing to tell.
func (c *conn) command(b []byte, args []span) {
	word := ""
	if len(args) > 1 {
		word = strings.ToUpper(string(args[1].of(b)))
	}
	switch word {
	case "":
		c.reply.array(len(known))
		for i := range known {
			c.describe(&known[i])
		}
	case "COUNT":
		c.reply.integer(len(known))
	case "LIST":
		c.reply.array(len(known))
		for _, k := range known {
			c.reply.bulk(k.name)
		}
	case "DOCS":
		c.reply.dict(0)
	case "INFO":
		if len(args) == 2 {
			c.command(nil, args[:1])
			return
		}
		c.reply.array(len(args) - 2)
		for _, a := range args[2:] {
			name := strings.ToLower(string(a.of(b)))
			i := slices.IndexFunc(known, func(k command) bool { return k.name == name })
			if i < 0 {
				c.reply.nullArray()
				continue
			}
			c.describe(&known[i])
		}
	default:
		c.reply.failure(fmt.Sprintf("ERR unknown subcommand '%.128s': use COUNT, DOCS, INFO or LIST", word))
	}
}

// describe has the seven fields that clients of all versions read: none of the commands has keys.
func (c *conn) describe(k *command) {
	c.reply.array(7)
	c.reply.bulk(k.name)
	c.reply.integer(k.arity)
	c.reply.array(len(k.flags))
	for _, f := range k.flags {
		c.reply.simple(f)
	}
	for range 3 {
		c.reply.integer(0) // first key, last key, step
	}
	c.reply.array(1)
	c.reply.simple(k.group)
}

// settings are what tools ask for before they do anything, and what the gateway is in these words.
var settings = [][2]string{{"appendonly", "no"}, {"databases", "1"}, {"save", ""}}

// config is CONFIG GET pattern….
func (c *conn) config(b []byte, args []span) {
	if len(args) < 3 || !strings.EqualFold(string(args[1].of(b)), "GET") {
		c.reply.failure("ERR only CONFIG GET is known: the gateway's settings are its flags")
		return
	}
	var found [][2]string
	for _, s := range settings {
		if slices.ContainsFunc(args[2:], func(a span) bool { return glob(strings.ToLower(string(a.of(b))), s[0]) }) {
			found = append(found, s)
		}
	}
	c.reply.dict(len(found))
	for _, s := range found {
		c.reply.bulk(s[0])
		c.reply.bulk(s[1])
	}
}

// info is the reply to INFO.
func (s *Server) info() string {
	st := s.Stats()
	return fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\nserver_name:hugebus\r\nuptime_in_seconds:%d\r\n\r\n# Clients\r\nconnected_clients:%d\r\n\r\n"+
		"# Stats\r\ntotal_connections_received:%d\r\ntotal_commands_processed:%d\r\npubsub_channels:%d\r\npubsub_patterns:%d\r\n\r\n# Replication\r\nrole:master\r\n",
		redisVersion, int(time.Since(s.began).Seconds()), st.Open, st.Accepted, st.Commands, st.Channels, st.Patterns)
}
