package broker

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/control"
)

func mustAccess(t *testing.T, rules ...Rule) *access {
	t.Helper()
	a, err := newAccess(rules)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAccessMatrix(t *testing.T) {
	const alice, bob, carol, dave = 4711, 4712, 4713, 4714 // dave has no rule of his own
	const traders = 900
	a := mustAccess(t,
		Rule{Name: "alice writes orders", Topics: []string{"orders.*"}, Users: []string{"4711"}, Allow: []Right{Publish, Create}},
		Rule{Name: "traders read", Topics: []string{"orders.*", "trades"}, Groups: []string{"900"}, Allow: []Right{Subscribe}},
		Rule{Name: "everybody reads news", Topics: []string{"news"}, Users: []string{"*"}, Allow: []Right{Subscribe}},
		Rule{Name: "bob runs trades", Topics: []string{"trades"}, Users: []string{"4712"}, Allow: []Right{Admin}},
	)
	who := map[string]control.Identity{
		"root":  {UID: 0},
		"self":  {UID: uint32(os.Geteuid())},
		"alice": {UID: alice},
		"bob":   {UID: bob, Groups: []uint32{5, traders}}, // supplementary
		"carol": {UID: carol, GID: traders},               // primary
		"dave":  {UID: dave},
	}
	allowed := map[string]string{ // who topic -> rights
		"alice orders.eu": "publish create",
		"alice news":      "subscribe",
		"bob orders.eu":   "subscribe",
		"bob trades":      "subscribe admin",
		"bob news":        "subscribe",
		"carol orders.eu": "subscribe",
		"carol trades":    "subscribe",
		"carol news":      "subscribe",
		"dave news":       "subscribe",
	}
	for name, id := range who {
		for _, topic := range []string{"orders.eu", "orders", "trades", "news", "secret"} {
			for _, right := range rights {
				want := name == "root" || name == "self" || strings.Contains(allowed[name+" "+topic], string(right))
				if got := a.allows(id, topic, right); got != want {
					t.Errorf("%s, %s, %s: %v, want %v", name, topic, right, got, want)
				}
				if err := a.check(id, right, topic); (err == nil) != want {
					t.Errorf("%s, %s, %s: check says %v", name, topic, right, err)
				}
			}
		}
	}
}

func TestRefusalSaysWhoWhatAndWhichRules(t *testing.T) {
	stranger := control.Identity{UID: 65000, PID: 77, Command: "worker"}
	err := mustAccess(t).check(stranger, Publish, "orders")
	wantError(t, err, control.CodeRefused, "uid 65000", "pid 77 (worker)", `may not publish to topic "orders"`, "no rule grants it",
		`rule "owner-only": for uid `+fmt.Sprint(os.Geteuid())+" and root")

	a := mustAccess(t,
		Rule{Name: "others", Topics: []string{"trades"}, Users: []string{"*"}, Allow: []Right{Publish}},
		Rule{Name: "readers", Topics: []string{"orders"}, Users: []string{"65000"}, Allow: []Right{Subscribe}},
		Rule{Name: "someone", Topics: []string{"*"}, Users: []string{"1"}, Allow: []Right{Publish}},
	)
	err = a.check(stranger, Publish, "orders")
	wantError(t, err, control.CodeRefused, `rule "readers": does not allow publish; rule "someone": for other users; rule "others": for other topics`, OwnerOnly)
	if n := a.refusals()[Publish]; n != 1 {
		t.Errorf("%d refusals were counted", n)
	}

	var many []Rule
	for i := range 20 {
		many = append(many, Rule{Name: fmt.Sprintf("r%d", i), Topics: []string{"*"}, Users: []string{"1"}, Allow: []Right{Publish}})
	}
	wantError(t, mustAccess(t, many...).check(stranger, Create, "orders"), control.CodeRefused, "may not create topic", "and 13 more")
}
