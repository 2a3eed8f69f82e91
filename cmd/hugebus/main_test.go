package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// patience is how long a process may take before it counts as hung.
const patience = 3 * time.Minute

// scenarios are the end-to-end tests. Each gets a built binary and a directory of its own.
var scenarios = map[string]func(*world){}

// TestCommand builds the binary once and runs every scenario with it, each process a real one.
func TestCommand(t *testing.T) {
	binary := testutil.BuildTagged(t, "github.com/hugebus/hugebus/cmd/hugebus", "")
	for name, run := range scenarios {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			run(&world{T: t, binary: binary, dir: dir, socket: filepath.Join(dir, "h.sock")})
		})
	}
}

// shortDir is a directory whose path leaves room for a socket's name, which t.TempDir's need not.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// world is where a scenario plays.
type world struct {
	*testing.T
	binary, dir, socket string
	user                *syscall.Credential // whom processes run as; nil: as the test
}

// command is a hugebus command line, with the scenario's socket.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.binary, args...)
	cmd.Env = append(os.Environ(), "HUGEBUS_SOCKET="+w.socket, "TMPDIR="+w.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: w.user}
	return cmd
}

// result is how a command has ended.
type result struct {
	code     int
	out, err string
}

// run runs a command to its end.
func (w *world) run(stdin string, args ...string) result {
	w.Helper()
	cmd := w.command(args...)
	var out, err bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &err
	p := w.start(cmd)
	return result{code: p.wait(), out: out.String(), err: err.String()}
}

// ok runs a command that must succeed, and returns what it printed.
func (w *world) ok(args ...string) string {
	w.Helper()
	r := w.run("", args...)
	if r.code != 0 {
		w.Fatalf("hugebus %q: exit status %d: %s", args, r.code, r.err)
	}
	return r.out
}

// decode is ok for a command that prints JSON.
func (w *world) decode(into any, args ...string) {
	w.Helper()
	text := w.ok(args...)
	if err := json.Unmarshal([]byte(text), into); err != nil {
		w.Fatalf("hugebus %q printed %q: %v", args, text, err)
	}
}

// process is a command that runs.
type process struct {
	w    *world
	cmd  *exec.Cmd
	err  *output // standard error, unless the caller took it
	done chan struct{}
}

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts a command, which is killed if it is still there when the test ends.
func (w *world) start(cmd *exec.Cmd) *process {
	w.Helper()
	p := &process{w: w, cmd: cmd, err: &output{}, done: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stderr = p.err
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // the status is in cmd.ProcessState
		close(p.done)
	}()
	w.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, as a rule
		<-p.done
	})
	return p
}

// wait waits for the end of a process and returns its exit status, or -1 if a signal killed it.
func (p *process) wait() int {
	p.w.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // prints its goroutines
		<-p.done
		p.w.Fatalf("%q hangs: %s", p.cmd.Args, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// succeed is wait for a process that must exit with 0.
func (p *process) succeed() {
	p.w.Helper()
	if code := p.wait(); code != 0 {
		p.w.Fatalf("%q: exit status %d: %s", p.cmd.Args, code, p.err)
	}
}

// terminate sends SIGTERM, and wants the exit status 0 for it.
func (p *process) terminate() {
	p.w.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.w.Fatal(err)
	}
	p.succeed()
}

// broker starts a broker that serves, and leaves nothing behind.
func (w *world) broker(args ...string) *process {
	w.Helper()
	return w.keptBroker(append([]string{"--no-keeper"}, args...)...)
}

// keptBroker starts a broker whose topics outlive it, unless args say otherwise.
func (w *world) keptBroker(args ...string) *process {
	w.Helper()
	p := w.start(w.command(append([]string{"broker"}, args...)...))
	testutil.Eventually(w, "the broker serves", func() bool {
		select {
		case <-p.done:
			w.Fatalf("the broker ended: %s", p.err)
		default:
		}
		return strings.Contains(p.err.String(), "broker serves")
	})
	return p
}

// into starts a command whose output goes to a new file, and returns the file's name.
func (w *world) into(name string, args ...string) (*process, string) {
	w.Helper()
	file := filepath.Join(w.dir, name)
	f, err := os.Create(file)
	if err != nil {
		w.Fatal(err)
	}
	defer f.Close()
	cmd := w.command(args...)
	cmd.Stdout = f
	return w.start(cmd), file
}

// ingress starts an ingress on a free port, and returns its address.
func (w *world) ingress(args ...string) (*process, string) {
	w.Helper()
	return w.listening("ingress", args...)
}

// listening starts a command that listens, on a free port, and returns its address.
func (w *world) listening(command string, args ...string) (*process, string) {
	w.Helper()
	p, file := w.into(command+"-"+strconv.Itoa(len(args)), append([]string{command, "--listen", "127.0.0.1:0"}, args...)...)
	var address string
	testutil.Eventually(w, "the "+command+" tells its address", func() bool {
		select {
		case <-p.done:
			w.Fatalf("the %s ended: %s", command, p.err)
		default:
		}
		address = w.read(file)
		return strings.HasSuffix(address, "\n")
	})
	return p, strings.TrimSpace(address)
}

func (w *world) read(file string) string {
	w.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

// show is what the broker says about a topic; false: there is none.
func (w *world) show(topic string) (client.TopicInfo, bool) {
	w.Helper()
	var t client.TopicInfo
	r := w.run("", "topic", "show", topic, "--json", "--rates=false")
	if r.code != 0 {
		return t, false
	}
	if err := json.Unmarshal([]byte(r.out), &t); err != nil {
		w.Fatal(err)
	}
	return t, true
}

// attached waits until a topic has what is asked for.
func (w *world) attached(topic, what string, condition func(client.TopicInfo) bool) {
	w.Helper()
	testutil.Eventually(w, topic+" has "+what, func() bool {
		t, ok := w.show(topic)
		return ok && condition(t)
	})
}

// reading waits until a topic has this many subscribers and members that would see what is published now.
func (w *world) reading(topic string, n int) {
	w.Helper()
	w.attached(topic, fmt.Sprintf("%d readers", n), func(t client.TopicInfo) bool {
		for _, s := range t.Subscribers {
			if s.Joining {
				return false
			}
		}
		return t.SubscriberCount == n
	})
}

// endless writes the numbers from 1 on, each in a line, until it cannot.
func endless(w io.Writer) {
	for n := 1; ; n++ {
		if _, err := fmt.Fprintln(w, n); err != nil {
			return
		}
	}
}

// numbers is what endless has written when n numbers were.
func numbers(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}
