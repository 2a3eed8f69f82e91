package door

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"os"
	"path"
	"strings"
)

// Access is what an identity may do: with which topics or channels, as patterns of path.Match in which * also matches a slash. Without a pattern, with none.
type Access struct {
	Name               string
	Publish, Subscribe []string
	token              [sha256.Size]byte
	hasToken           bool
}

// Everything is the access of everybody where no rules are set.
var Everything = &Access{Name: "default", Publish: []string{"*"}, Subscribe: []string{"*"}}

// MayPublish and MaySubscribe say whether a name is allowed.
func (a *Access) MayPublish(name string) bool { return matches(a.Publish, name) }

// MaySubscribe is MayPublish for reading. A pattern (of PSUBSCRIBE) is allowed if one of the rules is just that pattern, or *.
func (a *Access) MaySubscribe(name string) bool { return matches(a.Subscribe, name) }

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		if p == "*" || p == name {
			return true
		}
		// path.Match stops at slashes, which mean nothing in a channel's name.
		if ok, err := path.Match(strings.ReplaceAll(p, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00")); ok && err == nil {
			return true
		}
	}
	return false
}

// Rules are who may do what. They do not change.
type Rules struct {
	all []*Access
}

// ReadRules reads a file of lines: NAME, then any of token=SECRET, publish=PATTERN,… and subscribe=PATTERN,…. Empty lines, and
// those that begin with #, mean nothing. The file must be readable by its owner only, since it has secrets.
func ReadRules(file string) (*Rules, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--access: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("--access %s: others may read the secrets in it: chmod 600 %s", file, file)
	}
	r := new(Rules)
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		a := &Access{Name: words[0]}
		if r.Named(a.Name) != nil {
			return nil, fmt.Errorf("--access %s: line %d: %q is there twice", file, n, a.Name)
		}
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			switch {
			case value == "":
				return nil, fmt.Errorf("--access %s: line %d: %q has no value", file, n, key)
			case key == "token":
				a.token, a.hasToken = sha256.Sum256([]byte(value)), true
			case key == "publish":
				a.Publish = strings.Split(value, ",")
			case key == "subscribe":
				a.Subscribe = strings.Split(value, ",")
			default:
				return nil, fmt.Errorf("--access %s: line %d: %q: use token=, publish= or subscribe=", file, n, key)
			}
		}
		r.all = append(r.all, a)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("--access %s: %w", file, err)
	}
	return r, nil
}

// Named is the access of who has shown a certificate of that name, or nil.
func (r *Rules) Named(name string) *Access {
	for _, a := range r.all {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// Token is the access of who knows a token (and, unless it is empty or "default", the name that goes with it), or nil. It takes the same time whatever
// the token is: it compares digests, with all entries, to the end.
func (r *Rules) Token(name, token string) *Access {
	digest := sha256.Sum256([]byte(token))
	var found *Access
	for _, a := range r.all {
		same := subtle.ConstantTimeCompare(a.token[:], digest[:])
		if a.hasToken && same == 1 && (name == "" || name == "default" || name == a.Name) {
			found = a
		}
	}
	return found
}
