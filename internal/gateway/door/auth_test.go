package door

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access")
	write := func(text string) (*Rules, error) {
		check(t, os.WriteFile(file, []byte(text), 0o600))
		return ReadRules(file)
	}
	r, err := write("# comment\n\nalice token=a publish=x/*,y subscribe=*\nbob subscribe=[\n")
	check(t, err)
	alice := r.Token("alice", "a")
	if alice == nil || r.Token("", "a") != alice || r.Token("default", "a") != alice || r.Named("alice") != alice {
		t.Fatal("alice is not known")
	}
	if r.Token("bob", "a") != nil || r.Token("", "") != nil || r.Token("bob", "") != nil || r.Token("alice", "b") != nil || r.Named("carol") != nil {
		t.Error("a wrong token is taken")
	}
	for name, want := range map[string]bool{"x/1": true, "x/1/2": true, "y": true, "yy": false, "x": false} {
		if alice.MayPublish(name) != want {
			t.Errorf("alice publishes to %s: %t", name, !want)
		}
	}
	if bob := r.Named("bob"); bob.MayPublish("y") || bob.MaySubscribe("y") || !alice.MaySubscribe("anything") || !bob.MaySubscribe("[") {
		t.Error("who may subscribe")
	}
	for text, want := range map[string]string{
		"a token=": "no value", "a b=c": "use token=", "a publish=x\na publish=y": "line 2", "a token": "no value",
	} {
		if _, err := write(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	check(t, os.Chmod(file, 0o644))
	if _, err := ReadRules(file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
}
