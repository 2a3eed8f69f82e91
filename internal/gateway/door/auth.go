package door

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
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
	line               int // of the file
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

// maxRule is how long a line of rules may be.
const maxRule = bufio.MaxScanTokenSize

// ReadRules reads a file of lines: NAME, then any of token=SECRET, publish=PATTERN,… and subscribe=PATTERN,…. Empty lines, and
// those that begin with #, mean nothing. The file must be readable by its owner only, since it has secrets. Errors name the line, what is wrong
// in it (a secret never), and what to write.
func ReadRules(file string) (*Rules, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--access: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("--access: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("--access %s: a folder: give a file of lines such as %q", file, exampleRule)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("--access %s: others may read the secrets in it: chmod 600 %s", file, file)
	}
	r := new(Rules)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxRule)
	n := 0
	for lines.Scan() {
		n++
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		a, err := parseRule(words)
		if err == nil {
			err = r.add(a, n)
		}
		if err != nil {
			return nil, fmt.Errorf("--access %s: line %d: %w", file, n, err)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("--access %s: line %d: above the limit of %d bytes: use fewer or shorter patterns", file, n+1, maxRule)
	case err != nil:
		return nil, fmt.Errorf("--access %s: %w", file, err)
	case len(r.all) == 0:
		return nil, fmt.Errorf("--access %s: nobody is in it, so nobody could do anything: add a line such as %q", file, exampleRule)
	}
	return r, nil
}

const exampleRule = "alice token=SECRET publish=orders.* subscribe=*"

// parseRule is who one line is about, and what it lets them do.
func parseRule(words []string) (*Access, error) {
	a := &Access{Name: words[0]}
	if strings.Contains(a.Name, "=") {
		return nil, fmt.Errorf("it begins with %q, which is no name: write a line as %q", keyOf(a.Name)+"=", exampleRule)
	}
	seen := make(map[string]bool)
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		if seen[key] {
			return nil, fmt.Errorf("%s= is there twice: give it once, patterns with commas between them", key)
		}
		seen[key] = true
		var err error
		switch {
		case key != "token" && key != "publish" && key != "subscribe":
			return nil, fmt.Errorf("%q: use token=, publish= or subscribe=", key)
		case value == "":
			return nil, fmt.Errorf("%q has no value", key)
		case key == "token":
			a.token, a.hasToken = sha256.Sum256([]byte(value)), true
		case key == "publish":
			a.Publish, err = patterns(value)
		case key == "subscribe":
			a.Subscribe, err = patterns(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s=: %w", key, err)
		}
	}
	return a, nil
}

// keyOf is the part of a word that is no secret.
func keyOf(word string) string {
	key, _, _ := strings.Cut(word, "=")
	return key
}

// patterns are those of a list with commas.
func patterns(list string) ([]string, error) {
	all := strings.Split(list, ",")
	for _, p := range all {
		if p == "" {
			return nil, errors.New("there is nothing between two commas, or at an end: leave the comma out")
		}
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("%q is no pattern: it has *, ?, or [a-z] with its end; a backslash makes the next character stand for itself", p)
		}
	}
	return all, nil
}

// add adds who line n is about.
func (r *Rules) add(a *Access, n int) error {
	for _, other := range r.all {
		switch {
		case other.Name == a.Name:
			return fmt.Errorf("%q is there twice (line %d): write one line", a.Name, other.line)
		case other.hasToken && a.hasToken && other.token == a.token:
			return fmt.Errorf("%q has the token of %q (line %d), so that they could not be told apart: give each its own", a.Name, other.Name, other.line)
		}
	}
	a.line = n
	r.all = append(r.all, a)
	return nil
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
