package broker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const everything = `
socket: /tmp/h.sock
socket_mode: 0660
metrics: 127.0.0.1:0
log: {level: debug, format: json}
group_linger: 90s
defaults:
  capacity: 1MiB
  pages: 4KiB
  max_redeliveries: -1
topics:
  - name: orders
    capacity: 64KiB
    max_payload: 1000
    publishers: 2
    subscribers: 3
    groups: 4
    lock: false
  - name: trades
    exclusive: true
    numa_node: 0
on_demand:
  enabled: true
  topics: ["tmp.*"]
access:
  - name: everybody reads
    topics: ["*"]
    users: ["*"]
    allow: [subscribe]
  - name: staff
    topics: ["orders", "trades"]
    users: [root, 4711]
    groups: [0]
    allow: [publish, subscribe, admin, create]
quotas:
  topics: 10
  bytes: 1GiB
  clients: 20
  attachments_per_client: 30
  per_user: {topics: 5, bytes: 512MiB, clients: 7}
`

func TestConfigReadsEveryKey(t *testing.T) {
	c, err := ParseConfig("h.yaml", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	if c.Socket != "/tmp/h.sock" || c.SocketMode != 0o660 || c.Metrics != "127.0.0.1:0" || c.Log != (LogConfig{"debug", "json"}) {
		t.Errorf("head: %+v", c)
	}
	if c.GroupLinger != 90*time.Second || c.Defaults.Capacity != 1<<20 || c.Defaults.Pages != "4KiB" || c.Defaults.MaxRedeliveries != -1 {
		t.Errorf("defaults: %+v", c)
	}
	o := c.Topics[0].Options
	if c.Topics[0].Name != "orders" || o.Capacity != 64<<10 || o.MaxPayload != 1000 || o.Publishers != 2 || o.Subscribers != 3 || o.Groups != 4 {
		t.Errorf("topic 0: %+v", c.Topics[0])
	}
	if o := c.Topics[1].Options; !o.Exclusive || o.NUMANode == nil || *o.NUMANode != 0 {
		t.Errorf("topic 1: %+v", c.Topics[1])
	}
	if !c.OnDemand.covers("tmp.x") || c.OnDemand.covers("orders") {
		t.Errorf("on demand: %+v", c.OnDemand)
	}
	if len(c.Access) != 2 || c.Access[1].Users[1] != "4711" || c.Access[1].Allow[3] != Create {
		t.Errorf("access: %+v", c.Access)
	}
	q := Quotas{Limits: Limits{10, 1 << 30, 20}, PerUser: Limits{5, 512 << 20, 7}, Attachments: 30}
	if c.Quotas != q {
		t.Errorf("quotas: %+v", c.Quotas)
	}
}

func TestConfigZeroAndEmptyAreFine(t *testing.T) {
	if err := (Config{}).Check(); err != nil {
		t.Errorf("zero: %v", err)
	}
	c, err := ParseConfig("empty.yaml", nil)
	if err != nil || c.OnDemand.Disabled || c.Topics != nil {
		t.Errorf("empty file: %+v, %v", c, err)
	}
	for text, want := range map[string]bool{"on_demand: {enabled: false}": true, "on_demand: {enabled: true}": false, "on_demand: {topics: [a]}": false} {
		if c, err := ParseConfig("h.yaml", []byte(text)); err != nil || c.OnDemand.Disabled != want {
			t.Errorf("%s: %+v, %v", text, c.OnDemand, err)
		}
	}
	if c, err = ParseConfig("h.yaml", []byte("group_linger: 0s\n")); err != nil || c.GroupLinger >= 0 {
		t.Errorf("no linger: %+v, %v", c, err)
	}
	for text, want := range map[string]os.FileMode{"socket_mode: 0o600": 0o600, "socket_mode: 0660": 0o660, `socket_mode: "0666"`: 0o666, "socket_mode: 660": 0o660} {
		if c, err := ParseConfig("h.yaml", []byte(text)); err != nil || c.SocketMode != want {
			t.Errorf("%s: %#o, %v", text, c.SocketMode, err)
		}
	}
}

func TestConfigErrorsNameLineColumnAndRemedy(t *testing.T) {
	cases := []struct {
		text string
		want []string
	}{
		{"socket: /tmp/s\nsokcet_mode: 0600\n", []string{"h.yaml:2:1:", `unknown field "sokcet_mode"`}},
		{"topics:\n  - name: a\n    capcity: 1MiB\n", []string{"h.yaml:3:5:", `unknown field "capcity"`}},
		{"access:\n  - name: a\n    topics: [\"*\"]\n    users: [\"*\"]\n    alow: [publish]\n", []string{"h.yaml:5:5:", `"alow"`}},
		{"quotas:\n  per_user:\n    topix: 3\n", []string{"h.yaml:3:5:", `"topix"`}},
		{"socket: /a\nsocket: /b\n", []string{"h.yaml:2:1:", "already defined"}},
		{"a: b: c\n", []string{"h.yaml:1:"}},
		{"- a\n", []string{"h.yaml:1:"}},
		{"socket: /a\n---\nsocket: /b\n", []string{"more than one YAML document"}},
		{"defaults:\n  publishers: many\n", []string{"h.yaml:2:15:", "cannot unmarshal"}},
		{"defaults:\n  capacity: 100MiB\n", []string{"h.yaml:2:13:", "defaults.capacity: capacity 104857600 is not a power of two", "134217728 (128MiB)", "67108864 (64MiB)"}},
		{"topics:\n  - name: a\n  - name: b\n    capacity: 4095\n", []string{"h.yaml:4:15:", "topics[1].capacity", "from 4096 (4KiB)"}},
		{"topics:\n  - name: a\n    capacity: lots\n", []string{"h.yaml:3:15:", "lots"}},
		{"topics:\n  - name: a\n    pages: 3MiB\n", []string{"h.yaml:3:12:", "auto, 1GiB, 2MiB, thp or 4KiB"}},
		{"topics:\n  - name: a b\n", []string{"h.yaml:2:11:", `' ' at byte 1`}},
		{"topics:\n  - name: a\n  - name: a\n", []string{"h.yaml:3:11:", `"a" stands here twice`}},
		{"topics:\n  - name: a\n    capacity: 64KiB\n    max_payload: 1MiB\n", []string{"h.yaml:2:5:", `topic "a"`, "above the 16368"}},
		{"topics:\n  - name: a\n    exclusive: true\n    publishers: 3\n", []string{"h.yaml:2:5:", "exclusive topic has 1 publisher, not 3"}},
		{"topics:\n  - capacity: 64KiB\n", []string{"h.yaml:2:5:", "topic name is empty"}},
		{"socket_mode: 9\n", []string{"h.yaml:1:14:", "not an octal mode"}},
		{"socket_mode: 0066\n", []string{"h.yaml:1:14:", "keep the owner out"}},
		{"socket: \"" + strings.Repeat("x", 108) + "\"\n", []string{"h.yaml:1:9:", "108 bytes", "limit of 107"}},
		{"metrics: 9090\n", []string{"h.yaml:1:10:", "HOST:PORT"}},
		{"log:\n  level: loud\n", []string{"h.yaml:2:10:", "debug, info, warn, error"}},
		{"log:\n  format: xml\n", []string{"h.yaml:2:11:", "text, json"}},
		{"group_linger: soon\n", []string{"h.yaml:1:15:", "60s"}},
		{"on_demand:\n  topics: [\"a[\"]\n", []string{"h.yaml:2:12:", "not a pattern"}},
		{"access:\n  - topics: [\"*\"]\n", []string{"h.yaml:2:5:", "needs a name"}},
		{"access:\n  - {name: owner-only, topics: [a], users: [a], allow: [publish]}\n", []string{"h.yaml:2:12:", "built in"}},
		{"access:\n  - {name: a, users: [root], allow: [publish]}\n", []string{"h.yaml:2:6:", "names no topics"}},
		{"access:\n  - {name: a, topics: [b], allow: [publish]}\n", []string{"h.yaml:2:6:", "neither users nor groups"}},
		{"access:\n  - {name: a, topics: [b], users: [root]}\n", []string{"h.yaml:2:6:", "allows nothing"}},
		{"access:\n  - {name: a, topics: [b], users: [root], allow: [publish, write]}\n", []string{"access[0].allow[1]", `"write" is not one of publish, subscribe, admin, create`}},
		{"access:\n  - {name: a, topics: [b], users: [nosuchuser], allow: [publish]}\n", []string{"access[0].users[0]", `"nosuchuser"`, "does not know"}},
		{"access:\n  - {name: a, topics: [b], groups: [nosuchgroup], allow: [publish]}\n", []string{"access[0].groups[0]", `"nosuchgroup"`}},
		{"quotas:\n  bytes: much\n", []string{"h.yaml:2:10:", "much"}},
		{"quotas:\n  topics: 2\n  per_user:\n    topics: 3\n", []string{"h.yaml:4:13:", "3 for one user is above the 2 for all"}},
		{"quotas:\n  bytes: 1MiB\n  per_user:\n    bytes: 2MiB\n", []string{"h.yaml:4:12:"}},
		{"quotas:\n  clients: 1\n  per_user:\n    clients: 2\n", []string{"h.yaml:4:14:"}},
	}
	for _, c := range cases {
		_, err := ParseConfig("h.yaml", []byte(c.text))
		var bad *ConfigError
		if !errors.As(err, &bad) {
			t.Errorf("%q: error is %v", c.text, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %q does not say %q", c.text, err, want)
			}
		}
	}
}

func TestLoadConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h.yaml")
	if _, err := LoadConfig(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(file, []byte("metrics: nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(file); err == nil || !strings.Contains(err.Error(), file+":1:10: metrics:") {
		t.Errorf("bad file: %v", err)
	}
}

func TestLoggerFollowsTheConfig(t *testing.T) {
	var out bytes.Buffer
	log := Config{Log: LogConfig{Level: "warn", Format: "json"}}.NewLogger(&out)
	log.Info("quiet")
	log.Warn("loud")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, `"msg":"loud"`) {
		t.Errorf("log: %s", got)
	}
	out.Reset()
	Config{}.NewLogger(&out).Info("plain")
	if !strings.Contains(out.String(), "msg=plain") {
		t.Errorf("log: %s", out.String())
	}
}

func TestMergeOptionsPrefersTheTopicThenTheDefaults(t *testing.T) {
	got := mergeOptions(TopicOptions{Capacity: 8192}, TopicOptions{Capacity: 4096, Groups: 3})
	if got.Capacity != 8192 || got.Groups != 3 || got.Publishers != 64 || got.Pages != "auto" || got.MaxRedeliveries != DefaultMaxRedeliveries {
		t.Errorf("merged: %+v", got)
	}
	if got := mergeOptions(TopicOptions{Exclusive: true}, TopicOptions{Publishers: 9}); got.Publishers != 1 {
		t.Errorf("exclusive: %+v", got)
	}
}
