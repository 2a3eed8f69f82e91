package broker

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hugebus/hugebus/internal/control"
)

// A Right is what a rule may allow on the topics that it names.
type Right string

// The rights. Admin removes topics and sees all that is attached to them.
const (
	Publish   Right = "publish"
	Subscribe Right = "subscribe"
	Admin     Right = "admin"
	Create    Right = "create"
)

var rights = []Right{Publish, Subscribe, Admin, Create}

// OwnerOnly is the name of the implicit rule: the broker's own user and root may do
// everything. It is always there; without other rules it is the only one.
const OwnerOnly = "owner-only"

// A Rule allows users, and members of groups, to do something with topics. What no rule
// allows is refused.
type Rule struct {
	Name string
	// Topics are patterns of path.Match.
	Topics []string
	// Users and Groups are names or numbers; "*" means everybody.
	Users, Groups []string
	Allow         []Right
}

// access decides who may do what. It is safe for concurrent use.
type access struct {
	rules []compiled

	mu      sync.Mutex
	refused map[Right]uint64
}

// compiled is a rule with its users and groups looked up: once, so that a decision never
// waits for a directory service.
type compiled struct {
	Rule
	everybody bool
	uids      []uint32
	gids      []uint32
}

func newAccess(rules []Rule) (*access, *ConfigError) {
	a := &access{refused: map[Right]uint64{}}
	names := map[string]bool{OwnerOnly: true}
	for i, r := range rules {
		key := fmt.Sprintf("access[%d]", i)
		switch {
		case r.Name == "":
			return nil, wrong(key+".name", "a rule needs a name, for refusals to name it")
		case names[r.Name]:
			return nil, wrong(key+".name", "rule %q stands here twice, or is built in", r.Name)
		case control.CheckLabel(r.Name) != nil:
			return nil, wrong(key+".name", "%v", control.CheckLabel(r.Name))
		}
		names[r.Name] = true
		c, bad := compile(key, r)
		if bad != nil {
			return nil, bad
		}
		a.rules = append(a.rules, c)
	}
	a.rules = append(a.rules, compiled{
		Rule: Rule{Name: OwnerOnly, Topics: []string{"*"}, Allow: rights},
		uids: []uint32{0, uint32(os.Geteuid())},
	})
	return a, nil
}

func compile(key string, r Rule) (compiled, *ConfigError) {
	c := compiled{Rule: r}
	if len(r.Topics) == 0 {
		return c, wrong(key, "rule %q names no topics: write topics: [\"*\"] for all", r.Name)
	}
	if bad := checkPatterns(key+".topics", r.Topics); bad != nil {
		return c, bad
	}
	if len(r.Users) == 0 && len(r.Groups) == 0 {
		return c, wrong(key, "rule %q names neither users nor groups: write users: [\"*\"] for everybody", r.Name)
	}
	if len(r.Allow) == 0 {
		return c, wrong(key, "rule %q allows nothing: write allow: [publish, subscribe, admin, create] or some of them", r.Name)
	}
	for i, right := range r.Allow {
		if !slices.Contains(rights, right) {
			return c, wrong(fmt.Sprintf("%s.allow[%d]", key, i), "%q is not one of publish, subscribe, admin, create", string(right))
		}
	}
	for i, name := range r.Users {
		if name == "*" {
			c.everybody = true
			continue
		}
		uid, err := lookUp(name, userID)
		if err != nil {
			return c, wrong(fmt.Sprintf("%s.users[%d]", key, i), "user %q: %v", name, err)
		}
		c.uids = append(c.uids, uid)
	}
	for i, name := range r.Groups {
		if name == "*" {
			c.everybody = true
			continue
		}
		gid, err := lookUp(name, groupID)
		if err != nil {
			return c, wrong(fmt.Sprintf("%s.groups[%d]", key, i), "group %q: %v", name, err)
		}
		c.gids = append(c.gids, gid)
	}
	return c, nil
}

// lookUp turns a name or a number into an id.
func lookUp(name string, byName func(string) (string, error)) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	text, err := byName(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}

var errNotHere = errors.New("this host does not know it; names and numbers work")

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", errNotHere
	}
	return u.Uid, nil
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", errNotHere
	}
	return g.Gid, nil
}

// names reports whether the rule is about this process.
func (c compiled) names(who control.Identity) bool {
	return c.everybody || slices.Contains(c.uids, who.UID) || slices.ContainsFunc(c.gids, who.InGroup)
}

// grants reports whether one rule allows who to do right with topic.
func (c compiled) grants(who control.Identity, right Right, topic string) bool {
	return slices.Contains(c.Allow, right) && matchAny(c.Topics, topic) && c.names(who)
}

// allows reports whether some rule grants one of the rights.
func (a *access) allows(who control.Identity, topic string, any ...Right) bool {
	return slices.ContainsFunc(a.rules, func(c compiled) bool {
		return slices.ContainsFunc(any, func(r Right) bool { return c.grants(who, r, topic) })
	})
}

// check is nil if some rule grants right. Otherwise it says who may not do what, and
// which rules were looked at and why each does not grant it.
func (a *access) check(who control.Identity, right Right, topic string) error {
	if a.allows(who, topic, right) {
		return nil
	}
	return a.refuse(who, right, string(right), topic)
}

func (a *access) refuse(who control.Identity, right Right, verb, topic string) error {
	a.mu.Lock()
	a.refused[right]++
	a.mu.Unlock()
	return control.Errorf(control.CodeRefused, "%s may not %s topic %q: no rule grants it (looked at %s)",
		who, verbs(verb), topic, a.why(who, right, topic))
}

func verbs(verb string) string {
	switch Right(verb) {
	case Publish:
		return "publish to"
	case Subscribe:
		return "subscribe to"
	case Admin:
		return "administer"
	}
	return verb
}

// why lists the rules with what keeps each from granting, the most telling first.
func (a *access) why(who control.Identity, right Right, topic string) string {
	const most = 8
	var near, far []string
	for _, c := range a.rules {
		switch {
		case c.Name == OwnerOnly:
			far = append(far, fmt.Sprintf("rule %q: for uid %d and root", c.Name, os.Geteuid()))
		case !matchAny(c.Topics, topic):
			far = append(far, fmt.Sprintf("rule %q: for other topics", c.Name))
		case !c.names(who):
			near = append(near, fmt.Sprintf("rule %q: for other users", c.Name))
		default:
			near = append(near, fmt.Sprintf("rule %q: does not allow %s", c.Name, right))
		}
	}
	all := append(near, far...)
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(all, "; ")
}

// refusals counts refusals by right.
func (a *access) refusals() map[Right]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[Right]uint64, len(a.refused))
	for k, n := range a.refused {
		out[k] = n
	}
	return out
}
