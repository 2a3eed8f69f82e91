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
	r, err := write("# comment\n\nalice token=a publish=x/*,y subscribe=*\nbob subscribe=\\[\n")
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
		"a token=": "no value", "a b=c": "use token=", "a publish=x\na publish=y": `line 2: "a" is there twice (line 1)`, "a token": "no value",
		"a token=s3cret\n# b\nb token=s3cret": `line 3: "b" has the token of "a" (line 1)`,
		"a publish=x publish=y":               `line 1: publish= is there twice`, "a token=s3cret token=s3cret": "token= is there twice",
		"token=s3cret publish=x": `line 1: it begins with "token=", which is no name`,
		"":                       "nobody is in it", "\n# a token=x\n": "nobody is in it",
		"a publish=x,[": `line 1: publish=: "[" is no pattern`, "a subscribe=x,,y": "between two commas", "a subscribe=x,": "between two commas",
		"\n" + strings.Repeat("x", maxRule+1): "line 2: above the limit of 65536 bytes",
	} {
		if _, err := write(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.80q: %v", text, err)
		}
	}
	if _, err := ReadRules(filepath.Dir(file)); err == nil || !strings.Contains(err.Error(), "a folder: give a file") {
		t.Errorf("a folder: %v", err)
	}
	check(t, os.Chmod(file, 0o644))
	if _, err := ReadRules(file); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
}
