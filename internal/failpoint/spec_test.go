package failpoint

import (
	"maps"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := parse("a=kill; b=stop@3;;c-d.e=panic@1 ;")
	want := map[string]spec{"a": {"kill", 1}, "b": {"stop", 3}, "c-d.e": {"panic", 1}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := parse(""); err != nil || len(got) != 0 {
		t.Errorf("empty: %v, %v", got, err)
	}
}

func TestParseRefusals(t *testing.T) {
	for list, want := range map[string]string{
		"a":              `"a" is not NAME=ACTION or NAME=ACTION@N`,
		"=kill":          `"=kill" is not NAME=ACTION`,
		"a=":             `unknown action ""; use kill, stop, exit or panic`,
		"a=KILL":         `unknown action "KILL"`,
		"a=kill@0":       `the hit to act at is a number from 1, not "0"`,
		"a=kill@-1":      `not "-1"`,
		"a=kill@":        `not ""`,
		"a=kill@x":       `not "x"`,
		"a=kill;a=stop":  "a is there twice",
		"ok=exit;b=nope": `"b=nope": unknown action "nope"`,
	} {
		_, err := parse(list)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), Env) {
			t.Errorf("%s: %v; want %q in it", list, err, want)
		}
	}
}
