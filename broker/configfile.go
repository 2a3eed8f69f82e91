package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/hugebus/hugebus/shm"
)

// LoadConfig reads and checks a configuration file; see ParseConfig.
func LoadConfig(file string) (Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return ParseConfig(file, text)
}

// ParseConfig reads a YAML configuration strictly: a key that it does not know, a value
// of the wrong type or out of range is a *ConfigError with file, line and column. file
// is only for messages. docs/operations.md describes every key.
func ParseConfig(file string, text []byte) (Config, error) {
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return Config{}, yamlError(file, err)
	}
	if len(tree.Docs) > 1 {
		return Config{}, &ConfigError{File: file, Message: "more than one YAML document: one file holds one configuration"}
	}
	var f configFile
	if err := yaml.UnmarshalWithOptions(text, &f, yaml.Strict()); err != nil {
		return Config{}, yamlError(file, err)
	}
	p := places{tree: tree}
	c, bad := f.config(p)
	if bad == nil {
		bad = c.check()
	}
	if bad != nil {
		bad.File = file
		bad.Line, bad.Column = p.find(bad.Key)
		return Config{}, bad
	}
	return c, nil
}

// yamlError takes position and message out of the YAML package's errors.
func yamlError(file string, err error) error {
	bad := &ConfigError{File: file, Message: err.Error()}
	var y yaml.Error
	if errors.As(err, &y) {
		bad.Message = y.GetMessage()
		if t := y.GetToken(); t != nil && t.Position != nil {
			bad.Line, bad.Column = t.Position.Line, t.Position.Column
		}
	}
	return bad
}

// places finds keys in the file.
type places struct {
	tree *ast.File
}

// find returns line and column of a key's value, or of the nearest thing around it.
func (p places) find(key string) (line, column int) {
	for key != "" {
		if n := p.node(key); n != nil {
			at := n.GetToken().Position
			return at.Line, at.Column
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return 0, 0
}

func (p places) node(key string) ast.Node {
	if len(p.tree.Docs) == 0 || p.tree.Docs[0].Body == nil {
		return nil
	}
	at, err := yaml.PathString("$." + key)
	if err != nil {
		return nil
	}
	n, err := at.FilterNode(p.tree.Docs[0].Body)
	if err != nil || n == nil || n.GetToken() == nil {
		return nil
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		return m.Values[0].Key // a mapping's own token is its first colon
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		return m.Key
	}
	return n
}

// text is a scalar as it stands in the file: YAML would make a number of a mode.
func (p places) text(key string) string {
	n := p.node(key)
	if n == nil {
		return ""
	}
	return n.GetToken().Value
}

// configFile is the file's shape. Sizes, durations and modes are strings here, so that
// their errors can name the key.
type configFile struct {
	Socket     string `yaml:"socket"`
	SocketMode any    `yaml:"socket_mode"`
	Metrics    string `yaml:"metrics"`
	Log        struct {
		Level  string `yaml:"level"`
		Format string `yaml:"format"`
	} `yaml:"log"`
	GroupLinger string      `yaml:"group_linger"`
	AdoptGrace  string      `yaml:"adopt_grace"`
	StuckClaim  string      `yaml:"stuck_claim"`
	Defaults    fileOptions `yaml:"defaults"`
	Topics      []fileTopic `yaml:"topics"`
	OnDemand    struct {
		Enabled *bool    `yaml:"enabled"` // left out: true
		Topics  []string `yaml:"topics"`
	} `yaml:"on_demand"`
	Access []struct {
		Name   string   `yaml:"name"`
		Topics []string `yaml:"topics"`
		Users  []string `yaml:"users"`
		Groups []string `yaml:"groups"`
		Allow  []string `yaml:"allow"`
	} `yaml:"access"`
	Quotas struct {
		All         fileLimits `yaml:",inline"`
		Attachments int        `yaml:"attachments_per_client"`
		PerUser     fileLimits `yaml:"per_user"`
	} `yaml:"quotas"`
}

type fileLimits struct {
	Topics  int    `yaml:"topics"`
	Bytes   string `yaml:"bytes"`
	Clients int    `yaml:"clients"`
}

type fileOptions struct {
	Capacity        string `yaml:"capacity"`
	Pages           string `yaml:"pages"`
	MaxPayload      string `yaml:"max_payload"`
	Publishers      int    `yaml:"publishers"`
	Subscribers     int    `yaml:"subscribers"`
	Groups          int    `yaml:"groups"`
	Exclusive       bool   `yaml:"exclusive"`
	Lock            bool   `yaml:"lock"`
	NUMANode        *int   `yaml:"numa_node"`
	MaxRedeliveries int    `yaml:"max_redeliveries"`
}

type fileTopic struct {
	Name    string      `yaml:"name"`
	Options fileOptions `yaml:",inline"`
}

func (f configFile) config(p places) (c Config, bad *ConfigError) {
	c = Config{
		Socket: f.Socket, Metrics: f.Metrics,
		Log:      LogConfig{Level: f.Log.Level, Format: f.Log.Format},
		OnDemand: OnDemand{Disabled: f.OnDemand.Enabled != nil && !*f.OnDemand.Enabled, Topics: f.OnDemand.Topics},
		Quotas:   Quotas{Attachments: f.Quotas.Attachments},
	}
	if f.SocketMode != nil {
		if c.SocketMode, bad = parseMode("socket_mode", p.text("socket_mode")); bad != nil {
			return c, bad
		}
	}
	if f.GroupLinger != "" {
		d, err := time.ParseDuration(f.GroupLinger)
		if err != nil {
			return c, wrong("group_linger", "%q is not a duration such as 60s or 5m", f.GroupLinger)
		}
		c.GroupLinger = d
		if d == 0 {
			c.GroupLinger = -1
		}
	}
	if f.AdoptGrace != "" {
		d, err := time.ParseDuration(f.AdoptGrace)
		if err != nil || d <= 0 {
			return c, wrong("adopt_grace", "%q is not a duration above 0 such as 5s", f.AdoptGrace)
		}
		c.AdoptGrace = d
	}
	if f.StuckClaim != "" {
		d, err := time.ParseDuration(f.StuckClaim)
		if err != nil || d <= 0 {
			return c, wrong("stuck_claim", "%q is not a duration above 0 such as 1s", f.StuckClaim)
		}
		c.StuckClaim = d
	}
	if c.Defaults, bad = f.Defaults.options("defaults"); bad != nil {
		return c, bad
	}
	for i, t := range f.Topics {
		o, bad := t.Options.options(fmt.Sprintf("topics[%d]", i))
		if bad != nil {
			return c, bad
		}
		c.Topics = append(c.Topics, TopicConfig{Name: t.Name, Options: o})
	}
	for _, r := range f.Access {
		rule := Rule{Name: r.Name, Topics: r.Topics, Users: r.Users, Groups: r.Groups}
		for _, a := range r.Allow {
			rule.Allow = append(rule.Allow, Right(a))
		}
		c.Access = append(c.Access, rule)
	}
	if c.Quotas.Limits, bad = f.Quotas.All.limits("quotas"); bad != nil {
		return c, bad
	}
	c.Quotas.PerUser, bad = f.Quotas.PerUser.limits("quotas.per_user")
	return c, bad
}

func parseMode(key, text string) (fs.FileMode, *ConfigError) {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "0o"), 8, 32)
	if err != nil || n == 0 {
		return 0, wrong(key, "%q is not an octal mode such as 0660", text)
	}
	return fs.FileMode(n), nil
}

func parseSize(key, text string) (int64, *ConfigError) {
	if text == "" {
		return 0, nil
	}
	n, err := shm.ParseSize(text)
	if err != nil {
		return 0, wrong(key, "%v", err)
	}
	return n, nil
}

func (o fileOptions) options(key string) (TopicOptions, *ConfigError) {
	out := TopicOptions{
		Pages: o.Pages, Publishers: o.Publishers, Subscribers: o.Subscribers, Groups: o.Groups,
		Exclusive: o.Exclusive, Lock: o.Lock, NUMANode: o.NUMANode, MaxRedeliveries: o.MaxRedeliveries,
	}
	var bad *ConfigError
	if out.Capacity, bad = parseSize(key+".capacity", o.Capacity); bad != nil {
		return out, bad
	}
	if out.MaxPayload, bad = parseSize(key+".max_payload", o.MaxPayload); bad != nil {
		return out, bad
	}
	if o.Pages != "" {
		if _, err := shm.ParsePages(o.Pages); err != nil {
			return out, wrong(key+".pages", "%v", err)
		}
	}
	if out.Capacity != 0 {
		if err := checkCapacity(out.Capacity); err != nil {
			return out, wrong(key+".capacity", "%v", err)
		}
	}
	return out, nil
}

func (q fileLimits) limits(key string) (Limits, *ConfigError) {
	bytes, bad := parseSize(key+".bytes", q.Bytes)
	return Limits{Topics: q.Topics, Bytes: bytes, Clients: q.Clients}, bad
}
