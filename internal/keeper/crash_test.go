package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hugebus/hugebus/internal/failpoint"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	testutil.Register("script-process", func(args []string) {
		s, err := Start(context.Background(), childOptions(args[0]))
		runScript(s, err)
	})
	testutil.Register("script-systemd", func([]string) {
		s, err := Systemd(context.Background(), Inherit(), nil)
		runScript(s, err)
	})
	testutil.Register("adopt-systemd", func([]string) {
		s, err := Systemd(context.Background(), Inherit(), nil)
		if err == nil {
			err = s.Close()
		}
		fmt.Println("adopted", err)
	})
}

// A scriptStep is one call of a broker's life, and the state after it.
type scriptStep struct {
	key   string
	data  string
	files []string
	kind  string // put, update, delete
	after state
}

// script is every kind of change: small and large data, few and many descriptors, new entries and replaced ones.
var script = sync.OnceValue(func() []scriptStep {
	large := strings.Repeat("large ", inlineData/6+1)
	steps := []scriptStep{
		{kind: "put", key: "a", data: "a1", files: []string{"a1.0", "a1.1"}},
		{kind: "put", key: "b", data: large, files: numbered("b1.", 2*packetFiles+1)},
		{kind: "update", key: "a", data: "a2"},
		{kind: "put", key: "a", data: "a3", files: []string{"a3.0"}},
		{kind: "update", key: "b", data: large + "again"},
		{kind: "update", key: "b", data: "small"},
		{kind: "put", key: "b", data: "b2", files: numbered("b2.", packetFiles+1)},
		{kind: "delete", key: "a"},
		{kind: "put", key: "c", data: large},
		{kind: "delete", key: "b"},
	}
	now, files := state{}, make(map[string][]string)
	for i := range steps {
		s := &steps[i]
		switch s.kind {
		case "put":
			files[s.key] = s.files
			now = now.with(s.key, s.data, s.files...)
		case "update":
			now = now.with(s.key, s.data, files[s.key]...)
		case "delete":
			now = now.without(s.key)
		}
		s.after = now
	}
	return steps
})

// do carries a step out.
func (s scriptStep) do(store Store, files []*os.File) error {
	switch s.kind {
	case "put":
		return store.Put(context.Background(), s.key, []byte(s.data), files)
	case "update":
		return store.Update(context.Background(), s.key, []byte(s.data))
	}
	return store.Delete(context.Background(), s.key)
}

// runScript is a broker: it says when it is up, and after each step.
func runScript(s Store, err error) {
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("up")
	for i, step := range script() {
		var files []*os.File
		for _, text := range step.files {
			f, err := memFile(text)
			if err != nil {
				panic(err)
			}
			files = append(files, f)
		}
		if err := step.do(s, files); err != nil {
			fmt.Println(err)
			return
		}
		closeFiles(files)
		fmt.Println("did", i)
	}
	fmt.Println("end", s.Close())
}

// progress is how many steps a broker said that it did, and whether it came to its end.
func progress(t *testing.T, p *testutil.Proc) (steps int, ended bool) {
	t.Helper()
	p.Wait()
	for line := range strings.Lines(p.Stdout()) {
		switch line := strings.TrimSpace(line); {
		case line == "up":
		case line == fmt.Sprint("did ", steps):
			steps++
		case line == "end <nil>":
			ended = true
		default:
			t.Fatalf("the broker says %q", line)
		}
	}
	if !ended {
		mustBeKilled(t, p)
	}
	return steps, ended
}

func mustBeKilled(t *testing.T, p *testutil.Proc) {
	t.Helper()
	if status := p.Wait().Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Fatalf("process %d ended with %v: %s%s", p.Pid(), p.Wait(), p.Stdout(), p.Stderr())
	}
}

// survived fails the test unless got is what a broker leaves that was killed after some steps.
func survived(t *testing.T, where string, got state, steps int) {
	t.Helper()
	if !found(got, steps) {
		t.Fatalf("%s, after %d steps: the next broker finds\n%v, which is neither what they nor what one more leaves", where, steps, got)
	}
}

// found reports whether got is the state after the steps that were done, or after one more.
func found(got state, steps int) bool {
	before := state{}
	if steps > 0 {
		before = script()[steps-1].after
	}
	return equal(got, before) || steps < len(script()) && equal(got, script()[steps].after)
}

// TestDeathAtEveryPoint kills brokers and keepers at each failpoint, at its first hit, its second, and so on.
func TestDeathAtEveryPoint(t *testing.T) {
	program := testutil.BuildTagged(t, "github.com/hugebus/hugebus/internal/keeper", "failpoint")
	for _, name := range []string{FailBeforeRequest, FailAfterRequest, FailAfterReply} {
		t.Run("broker/"+name, func(t *testing.T) { killBroker(t, program, name) })
	}
	for _, name := range []string{FailBeforeNotify, FailAfterNotify} {
		t.Run("systemd/"+name, func(t *testing.T) { killService(t, program, name) })
	}
	for _, name := range []string{FailKeeperReceived, FailKeeperApplied, FailKeeperAnswered} {
		t.Run("keeper/"+name, func(t *testing.T) { killKeeper(t, program, name) })
	}
}

func armed(name string, hit int) string {
	return fmt.Sprintf("%s=%s=kill@%d", failpoint.Env, name, hit)
}

// killBroker kills a broker before or after a message to its keeper process, or after an answer.
func killBroker(t *testing.T, program, name string) {
	kills := 0
	for hit := 1; ; hit++ {
		o := options(t, newSocket(t))
		p := testutil.Launch(t, testutil.Child{Binary: program, Role: "script-process", Args: []string{o.Socket}, Env: []string{armed(name, hit)}})
		steps, ended := progress(t, p)
		r := start(t, o) // at once
		survived(t, fmt.Sprintf("killed at %s for the %d. time", name, hit), load(t, r), steps)
		checkNoRest(t, r)
		r.Close()
		kill(t, r.pid)
		if ended {
			break
		}
		kills++
	}
	if want := 1 + len(script()) + 3; kills != want { // hello, each step, three times the first part of many descriptors
		t.Errorf("%d kills, want %d", kills, want)
	}
}

// checkNoRest fails the test if a keeper process has more descriptors than its entries: it must drop what a dead
// broker had staged.
func checkNoRest(t *testing.T, r *remote) {
	t.Helper()
	entries, err := r.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, e := range entries {
		want += len(e.Files)
		e.Close()
	}
	got := 0
	for _, target := range openFiles(t, r.pid) {
		if strings.HasPrefix(target, "/memfd:") && !strings.HasPrefix(target, "/memfd:hugebus-keeper-") {
			got++
		}
	}
	if got != want {
		t.Errorf("the keeper has %d descriptors of brokers, its entries %d", got, want)
	}
}

// killService does the same with systemd's store, and then kills the next one in the middle of adopting what it finds.
func killService(t *testing.T, program, name string) {
	kills, adoptions := 0, 0
	for hit := 1; ; hit++ {
		m := newFakeSystemd(t, newSocket(t), 100)
		p := m.service(t, testutil.Child{Binary: program, Role: "script-systemd", Env: []string{armed(name, hit)}})
		steps, ended := progress(t, p)
		m.settle(t)
		where := fmt.Sprintf("killed at %s for the %d. time", name, hit)
		adoptions += m.killedAdoptions(t, program, where, name)
		s := m.open(t)
		survived(t, where, load(t, s), steps)
		m.check(t, s)
		s.Close()
		m.close()
		if ended {
			break
		}
		kills++
	}
	if kills < 50 || adoptions < kills {
		t.Errorf("only %d kills, and %d while adopting", kills, adoptions)
	}
}

// killedAdoptions starts brokers that are killed at the first, the second, … message of their adoption, each on what
// the one before left, until one comes through.
func (m *fakeSystemd) killedAdoptions(t *testing.T, program, where, name string) (kills int) {
	t.Helper()
	for {
		// A killed one has said a message more than the one before, so this ends.
		p := m.service(t, testutil.Child{Binary: program, Role: "adopt-systemd", Env: []string{armed(name, kills+1)}})
		if p.Wait(); strings.TrimSpace(p.Stdout()) == "adopted <nil>" {
			return kills
		}
		mustBeKilled(t, p)
		kills++
		m.settle(t)
	}
}

// settle waits until all that the dead have said is carried out, as systemd does before it starts the next.
func (m *fakeSystemd) settle(t testing.TB) {
	t.Helper()
	n, err := dialNotify(m.address)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	if err := n.barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// killKeeper kills the keeper process under a broker that lives. The broker starts another one, puts everything again,
// and goes on.
func killKeeper(t *testing.T, program, name string) {
	kills := 0
	for hit := 2; ; hit++ { // the first is hello
		o := options(t, newSocket(t))
		o.Exec = append([]string{"/usr/bin/env", armed(name, hit)}, keeperExec(program)...)
		if !brokerGoesOn(t, o) {
			break
		}
		kills++
	}
	if least := len(script()) + 3; kills < least {
		t.Errorf("%d kills, want %d at least", kills, least)
	}
}

// brokerGoesOn runs the script, and reports whether the keeper was killed on the way.
func brokerGoesOn(t *testing.T, o Options) (lost bool) {
	t.Helper()
	r := start(t, o)
	files := make(map[string][]*os.File)
	now := state{}
	for _, step := range script() {
		if step.kind == "put" {
			files[step.key] = textFiles(t, step.files...)
		}
		err := step.do(r, files[step.key])
		if err == nil {
			now = step.after
			continue
		}
		if lost {
			t.Fatalf("%s %s: %v", step.kind, step.key, err)
		}
		lost = true
		<-r.Lost()
		r.Close()
		o.Exec = keeperExec(self(t)) // this one lives
		r = start(t, o)
		for key, content := range step.after {
			data, _, _ := strings.Cut(content, "|")
			mustPut(t, r, key, data, files[key]...)
		}
		now = step.after
	}
	entries, err := r.Load(t.Context())
	if !lost && errors.Is(err, ErrLost) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := stateOf(t, entries); !equal(got, now) {
		t.Fatalf("the keeper has\n%v, want\n%v", got, now)
	}
	r.Close()
	kill(t, r.pid)
	return lost
}
