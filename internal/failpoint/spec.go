// Package failpoint lets a test stop or kill a real process at a named instant: after the intent, in the middle of a copy,
// before the commit.
//
// Code that has such an instant calls Hit with its name. Without the build tag "failpoint" Hit is an empty function
// that the compiler removes. With it, the environment variable HUGEBUS_FAILPOINTS says what happens where:
//
//	HUGEBUS_FAILPOINTS='ring-after-intent=stop;ring-mid-copy=kill@3'
//
// Each entry is NAME=ACTION or NAME=ACTION@N, which acts at the N-th hit (from 1, the default) in this process and at no
// other. The actions:
//
//	kill   "failpoint NAME" goes to standard error as a line of its own, then the process gets SIGKILL
//	stop   the same with SIGSTOP; the goroutine goes on after a SIGCONT and not before, the others run until the kernel
//	       has stopped them
//	exit   the process exits with status 3; deferred functions do not run
//	panic  the goroutine panics with "failpoint NAME"
//
// Anything else in the variable ends the process at its start, with status 2 and a message. Whoever calls Hit keeps its
// names as constants, so that a test can spell them only one way.
package failpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// Env is the environment variable that arms failpoints.
const Env = "HUGEBUS_FAILPOINTS"

// spec is what one failpoint does, and when.
type spec struct {
	action string
	at     int // the hit that acts, from 1
}

// parse reads the variable. Empty entries are allowed, so that scripts can append.
func parse(list string) (map[string]spec, error) {
	specs := make(map[string]spec)
	for entry := range strings.SplitSeq(list, ";") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		name, rest, found := strings.Cut(entry, "=")
		if !found || name == "" {
			return nil, fmt.Errorf("failpoint: %s: %q is not NAME=ACTION or NAME=ACTION@N", Env, entry)
		}
		s := spec{at: 1}
		var count string
		s.action, count, found = strings.Cut(rest, "@")
		if found {
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("failpoint: %s: %q: the hit to act at is a number from 1, not %q", Env, entry, count)
			}
			s.at = n
		}
		switch s.action {
		case "kill", "stop", "exit", "panic":
		default:
			return nil, fmt.Errorf("failpoint: %s: %q: unknown action %q; use kill, stop, exit or panic", Env, entry, s.action)
		}
		if _, twice := specs[name]; twice {
			return nil, fmt.Errorf("failpoint: %s: %q: %s is there twice", Env, entry, name)
		}
		specs[name] = s
	}
	return specs, nil
}
