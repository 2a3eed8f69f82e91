package resp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/gateway/door"
)

// guarded starts a gateway that alice may use.
func guarded(t *testing.T) *rig {
	file := filepath.Join(t.TempDir(), "access")
	check(t, os.WriteFile(file, []byte("alice token=s3cret publish=* subscribe=*\n"), 0o600))
	rules, err := door.ReadRules(file)
	check(t, err)
	return start(t, func(c *Config) { c.Topic, c.Rules = "chat", rules })
}

func TestALargeMessageMayComeTogetherWithAUTH(t *testing.T) {
	r := guarded(t)
	large := "*3\n$7\nPUBLISH\n$1\na\n$20000\n" + strings.Repeat("x", 20000) + "\n"
	c := r.dial()
	c.send("AUTH s3cret\n" + large)
	c.want("+OK\n:0\n")
	c.send("RESET\n" + large)
	c.want("+RESET\n")
	c.wantPrefix("-ERR Protocol error: an argument of 20000 bytes is above the limit of 16384: authenticate first (AUTH)")
}

// The replies are those of redis-server 7.0.15.
func TestWhatHELLORefuses(t *testing.T) {
	r := guarded(t)
	for _, c := range []struct{ line, reply string }{
		{"HELLO x", "-ERR Protocol version is not an integer or out of range\n"},
		{"HELLO AUTH alice s3cret 3", "-ERR Protocol version is not an integer or out of range\n"},
		{"HELLO 4", "-NOPROTO unsupported protocol version\n"},
		{"HELLO 3 AUTH alice", "-ERR Syntax error in HELLO option 'AUTH'\n"},
		{"HELLO 3 foo", "-ERR Syntax error in HELLO option 'foo'\n"},
		{"HELLO 3 AUTH alice wrong", "-WRONGPASS invalid username-password pair or user is disabled.\n"},
		{"HELLO 3 AUTH alice s3cret Foo", "-ERR Syntax error in HELLO option 'Foo'\n"},
		{`HELLO 3 AUTH alice s3cret SETNAME "a b"`, "-ERR Client names cannot contain spaces, newlines or special characters.\n"},
	} {
		conn := r.dial()
		conn.send(c.line + "\n")
		conn.want(c.reply)
	}
	c := r.dial()
	c.send("AUTH s3cret\nCLIENT SETNAME \"a b\"\n")
	c.want("+OK\n-ERR Client names cannot contain spaces, newlines or special characters.\n")
}
