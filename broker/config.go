package broker

import (
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hugebus/hugebus/internal/control"
)

// TopicOptions say how to make a topic; what is left at zero takes the default.
type TopicOptions = control.TopicOptions

// A Config is what a broker can be told. The zero value works: the default socket,
// nothing but the owner may use it, no metrics. ParseConfig reads one from YAML.
type Config struct {
	// Socket is the path of the control socket; empty: control.DefaultSocket.
	Socket string
	// SocketMode are the rights of the socket file; 0 means 0666, so that those whom no
	// rule admits are told so in words.
	SocketMode fs.FileMode
	// Metrics is the TCP address for /metrics and /debug/pprof; empty: none. Port 0 works.
	Metrics string
	// Log says what the daemon logs, and how; see NewLogger.
	Log LogConfig
	// Logger receives the broker's log; nil: slog.Default. It is not part of the file.
	Logger *slog.Logger
	// Defaults are used for what a topic's options leave out.
	Defaults TopicOptions
	// Topics are made at start.
	Topics []TopicConfig
	// OnDemand says which topics are made when a client attaches to them.
	OnDemand OnDemand
	// Access are the rules; without any, only the broker's own user and root may do anything.
	Access []Rule
	// Quotas bound what clients may take.
	Quotas Quotas
	// GroupLinger is how long a group is kept whose last member died or left something
	// unfinished; 0 means DefaultGroupLinger, negative not at all.
	GroupLinger time.Duration
	// joinPatience is for tests; 0 means the constant of that name.
	joinPatience time.Duration
	// Keeper says what outlives the broker; the zero value is nothing. It is not part of the file.
	Keeper KeeperConfig
	// AdoptGrace is how long clients of an earlier broker have to come back before those
	// are taken for dead of which the kernel does not say whether they live, and the others are
	// named in the log; 0 means DefaultAdoptGrace.
	AdoptGrace time.Duration
	// StuckClaim is how long a living publisher may hold a claim before it is named in the log,
	// in lists and in figures, and may be unstuck; 0 means DefaultStuckClaim.
	StuckClaim time.Duration
}

// DefaultGroupLinger is used where Config.GroupLinger is 0.
const DefaultGroupLinger = time.Minute

// DefaultSocketMode is used where Config.SocketMode is 0.
const DefaultSocketMode fs.FileMode = 0o666

// A LogConfig chooses level (debug, info, warn, error) and format (text, json).
type LogConfig struct {
	Level, Format string
}

// A TopicConfig is a topic that is made at start.
type TopicConfig struct {
	Name    string
	Options TopicOptions
}

// OnDemand says whether attaching makes a missing topic, for clients that may create
// it, and for which names (patterns of path.Match; none: every name). The zero value
// makes every topic that a client asks for and may create.
type OnDemand struct {
	Disabled bool
	Topics   []string
}

// covers reports whether a topic of that name is made on demand.
func (o OnDemand) covers(topic string) bool {
	return !o.Disabled && (len(o.Topics) == 0 || matchAny(o.Topics, topic))
}

// matchAny reports whether one of the patterns, which were checked, matches.
func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}

// A ConfigError says what is wrong with a configuration. File, Line and Column are set
// if it came from a file.
type ConfigError struct {
	File         string
	Line, Column int
	// Key is the path of the value, such as access[0].allow[1].
	Key     string
	Message string
}

// Error is file:line:column: key: message, as far as known.
func (e *ConfigError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ":")
	}
	if e.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", e.Line, e.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

func wrong(key, format string, args ...any) *ConfigError {
	return &ConfigError{Key: key, Message: fmt.Sprintf(format, args...)}
}

// Check tells what is wrong with c; the error is a *ConfigError.
func (c Config) Check() error {
	if err := c.check(); err != nil {
		return err
	}
	return nil
}

func (c Config) check() *ConfigError {
	checks := []func() *ConfigError{c.checkSocket, c.checkMetrics, c.checkLog, c.checkTopics, c.checkOnDemand, c.Quotas.check, c.checkKeeping}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	_, err := newAccess(c.Access)
	return err
}

func (c Config) checkKeeping() *ConfigError {
	if c.AdoptGrace < 0 {
		return wrong("adopt_grace", "%v is negative", c.AdoptGrace)
	}
	if c.StuckClaim < 0 {
		return wrong("stuck_claim", "%v is negative", c.StuckClaim)
	}
	return c.Keeper.check()
}

func (c Config) checkSocket() *ConfigError {
	if c.Socket != "" {
		if err := control.CheckSocketPath(c.Socket); err != nil {
			return wrong("socket", "%v", err)
		}
	}
	if c.SocketMode&^0o777 != 0 {
		return wrong("socket_mode", "%#o is not a mode from 0 to 0777", uint32(c.SocketMode))
	}
	if c.SocketMode != 0 && c.SocketMode&0o600 != 0o600 {
		return wrong("socket_mode", "%#o would keep the owner out: add 0600", uint32(c.SocketMode))
	}
	return nil
}

func (c Config) checkMetrics() *ConfigError {
	if c.Metrics == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Metrics); err != nil {
		return wrong("metrics", "%v: write HOST:PORT, for example 127.0.0.1:9090", err)
	}
	return nil
}

func (c Config) checkLog() *ConfigError {
	if !slices.Contains([]string{"", "debug", "info", "warn", "error"}, c.Log.Level) {
		return wrong("log.level", "%q is not one of debug, info, warn, error", c.Log.Level)
	}
	if !slices.Contains([]string{"", "text", "json"}, c.Log.Format) {
		return wrong("log.format", "%q is not one of text, json", c.Log.Format)
	}
	return nil
}

func (c Config) checkTopics() *ConfigError {
	// The defaults must make a topic by themselves.
	if err := checkOptions(mergeOptions(TopicOptions{}, c.Defaults)); err != nil {
		return wrong("defaults", "%v", err)
	}
	seen := map[string]bool{}
	for i, t := range c.Topics {
		key := fmt.Sprintf("topics[%d]", i)
		if err := control.CheckTopicName(t.Name); err != nil {
			return wrong(key+".name", "%v", err)
		}
		if seen[t.Name] {
			return wrong(key+".name", "topic %q stands here twice", t.Name)
		}
		seen[t.Name] = true
		if err := checkOptions(mergeOptions(t.Options, c.Defaults)); err != nil {
			return wrong(key, "topic %q: %v", t.Name, err)
		}
	}
	return nil
}

func (c Config) checkOnDemand() *ConfigError {
	return checkPatterns("on_demand.topics", c.OnDemand.Topics)
}

// checkPatterns checks patterns of topic names.
func checkPatterns(key string, patterns []string) *ConfigError {
	for i, p := range patterns {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return wrong(fmt.Sprintf("%s[%d]", key, i), "%q is not a pattern: use * ? [a-z] and the characters of topic names", p)
		}
	}
	return nil
}

// NewLogger makes the logger that c.Log describes.
func (c Config) NewLogger(w io.Writer) *slog.Logger {
	var level slog.Level
	if c.Log.Level != "" {
		// Check has seen to it that it is a level.
		_ = level.UnmarshalText([]byte(c.Log.Level))
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
