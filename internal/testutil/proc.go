package testutil

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

const (
	roleEnv   = "HUGEBUS_TEST_ROLE"
	parentEnv = "HUGEBUS_TEST_PARENT_FD" // number of the descriptor that ends when the parent does
	firstFile = 3                        // number of the first descriptor after the standard ones
)

// patience is how long a test waits for a child to say something or to end before it calls that a hang.
const patience = 2 * time.Minute

var roles = make(map[string]func(args []string))

// Register gives a role to children that Start makes: in such a child, Main calls run with Start's arguments instead of
// running tests, and the child exits with status 0 when run returns. Call it from an init function. A name that is
// taken panics.
func Register(name string, run func(args []string)) {
	if _, taken := roles[name]; taken {
		panic("testutil: role " + name + " is registered twice")
	}
	roles[name] = run
}

func runRole(name string, args []string) int {
	run, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "testutil: no role %q here; there are %q\n", name, slices.Sorted(maps.Keys(roles)))
		return 2
	}
	err := dieWithParent()
	// What this child starts is nobody's role, unless it says so.
	_, _ = os.Unsetenv(roleEnv), os.Unsetenv(parentEnv)
	if err != nil {
		fmt.Fprintf(os.Stderr, "testutil: %v\n", err)
		return 2
	}
	defer startWatchdog().Stop()
	run(args)
	return 0
}

// dieWithParent makes this child exit when its parent is gone, however the parent went. A parent-death signal would not
// do: it comes when the parent's *thread* ends.
func dieWithParent() error {
	var fd int
	if _, err := fmt.Sscan(os.Getenv(parentEnv), &fd); err != nil {
		return fmt.Errorf("%s is %q, not a descriptor's number: start roles with testutil.Start", parentEnv,
			os.Getenv(parentEnv))
	}
	f := os.NewFile(uintptr(fd), "parent")
	go func() {
		_, _ = io.Copy(io.Discard, f) // nobody writes: this ends when the parent's end is closed
		os.Exit(4)
	}()
	return nil
}

// File returns the i-th of the files that Launch handed to this child. The caller closes it.
func File(i int) *os.File {
	return os.NewFile(uintptr(firstFile+i), fmt.Sprintf("file %d of the parent", i))
}

// Child says how to start a process.
type Child struct {
	Binary string     // program to run; "" is this test binary
	Role   string     // registered role; "" runs Binary as it is, such as a program from BuildTagged
	Args   []string   // arguments after the program's name
	Env    []string   // NAME=VALUE, added to this process's environment
	Files  []*os.File // handed over; a role gets them with File(0), File(1), …; others as descriptors 3, 4, …

	// User runs it as another user, which needs root; Binary must be a program that this user may execute, which a
	// test binary is not where go test puts it.
	User *syscall.Credential
}

// Proc is a child process with lines of text from it. Its methods are for the test's goroutine; each fails the test
// instead of returning an error, and none waits for ever. The child is killed when the test ends.
type Proc struct {
	t        testing.TB
	cmd      *exec.Cmd
	alive    *os.File // write end of the pipe that tells the child that we are here
	stdin    *os.File
	out, err *lines
	waited   bool
}

// Start runs this test binary again as a process of its own, in a role that Register named.
func Start(t testing.TB, role string, args ...string) *Proc {
	t.Helper()
	return Launch(t, Child{Role: role, Args: args})
}

// Launch starts a process. It is in a process group of its own: if this process dies while the child is stopped, the
// kernel then hangs the child up, so that no stopped child stays behind.
func Launch(t testing.TB, c Child) *Proc {
	t.Helper()
	if c.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatalf("testutil: where is this test binary? %v", err)
		}
		c.Binary = self
	}
	p := &Proc{t: t, cmd: exec.Command(c.Binary, c.Args...)}
	stdin, inW := pipe(t)
	outR, stdout := pipe(t)
	errR, stderr := pipe(t)
	alive, aliveW := pipe(t)
	p.stdin, p.alive = inW, aliveW
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, stderr
	p.cmd.ExtraFiles = append(slices.Clip(c.Files), alive)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.User}
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Env = append(p.cmd.Env, roleEnv+"="+c.Role, fmt.Sprintf("%s=%d", parentEnv, firstFile+len(c.Files)))
	err := p.cmd.Start()
	closeAll(stdin, stdout, stderr, alive)
	if err != nil {
		closeAll(inW, outR, errR, aliveW)
		t.Fatalf("testutil: start %s: %v", c.Binary, err)
	}
	children.add(p.cmd.Process)
	p.out, p.err = readLines(outR), readLines(errR)
	t.Cleanup(p.end)
	return p
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatalf("testutil: pipe: %v", err)
	}
	return r, w
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Pid returns the child's process number.
func (p *Proc) Pid() int { return p.cmd.Process.Pid }

// Line returns the next line that the child wrote to standard output, without its end. The test fails if the child ends or
// hangs instead.
func (p *Proc) Line() string {
	p.t.Helper()
	line, err := p.out.next(patience)
	if err != nil {
		p.t.Fatalf("testutil: waiting for a line from child %d: %v\nits standard error:\n%s", p.Pid(), err, p.err.all())
	}
	return line
}

// Expect reads a line and fails the test unless it is want.
func (p *Proc) Expect(want string) {
	p.t.Helper()
	if got := p.Line(); got != want {
		p.t.Fatalf("testutil: child %d says %q, want %q\nits standard error:\n%s", p.Pid(), got, want, p.err.all())
	}
}

// ExpectError skips lines of standard error until one is want.
func (p *Proc) ExpectError(want string) {
	p.t.Helper()
	for {
		got, err := p.err.next(patience)
		if err != nil {
			p.t.Fatalf("testutil: waiting for %q on standard error of child %d: %v\nwhat there was:\n%s", want, p.Pid(),
				err, p.err.all())
		}
		if got == want {
			return
		}
	}
}

// AtFailpoint waits until the child stops at a failpoint: its line is there, and the kernel says that it is stopped.
func (p *Proc) AtFailpoint(name string) {
	p.t.Helper()
	p.ExpectError("failpoint " + name)
	Eventually(p.t, fmt.Sprintf("child %d is stopped at failpoint %s", p.Pid(), name), func() bool {
		return stopped(p.Pid())
	})
}

// Halt stops the child and waits until the kernel says that it is stopped. Signal(SIGCONT) lets it go on.
func (p *Proc) Halt() {
	p.t.Helper()
	p.Signal(syscall.SIGSTOP)
	Eventually(p.t, fmt.Sprintf("child %d is stopped", p.Pid()), func() bool { return stopped(p.Pid()) })
}

// stopped reports whether the kernel has stopped all threads of a process; the first says so a little before the last.
func stopped(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			return false // a thread has just ended
		}
		// The second field is the program's name in parentheses, which may contain anything; the third is the state.
		if after := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(after, []byte(" T ")) {
			return false
		}
	}
	return len(stats) > 0
}

// Send writes a line to the child's standard input.
func (p *Proc) Send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatalf("testutil: to child %d: %v\nits standard error:\n%s", p.Pid(), err, p.err.all())
	}
}

// CloseInput ends the child's standard input.
func (p *Proc) CloseInput() { _ = p.stdin.Close() }

// Stdout returns all of standard output so far, lines that Line returned included.
func (p *Proc) Stdout() string { return p.out.all() }

// Stderr returns all of standard error so far.
func (p *Proc) Stderr() string { return p.err.all() }

// Signal sends a signal to the child. A child that has ended already is not an error.
func (p *Proc) Signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("testutil: signal %v to child %d: %v", sig, p.Pid(), err)
	}
}

// Kill kills the child, running or stopped, and waits for its end.
func (p *Proc) Kill() {
	p.t.Helper()
	p.Signal(os.Kill)
	p.Wait()
}

// Wait waits until the child has ended and returns how. Stdout and Stderr are complete then. A child that does not end
// within minutes is made to print its goroutines, and fails the test.
func (p *Proc) Wait() *os.ProcessState {
	p.t.Helper()
	if !p.waited {
		hung := time.AfterFunc(patience, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) })
		killed := time.AfterFunc(patience+10*time.Second, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait() // an exit status is not an error here
		killed.Stop()
		p.waited = true
		children.remove(p.cmd.Process)
		closeAll(p.stdin, p.alive)
		p.out.finish()
		p.err.finish()
		if !hung.Stop() {
			p.t.Fatalf("testutil: child %d did not end within %v; its standard error:\n%s", p.Pid(), patience, p.err.all())
		}
	}
	return p.cmd.ProcessState
}

// Succeed waits for the child and fails the test unless it exited with status 0.
func (p *Proc) Succeed() {
	p.t.Helper()
	if s := p.Wait(); !s.Success() {
		p.t.Fatalf("testutil: child %d: %v; its standard error:\n%s", p.Pid(), s, p.err.all())
	}
}

func (p *Proc) end() {
	if !p.waited {
		_ = p.cmd.Process.Kill()
		p.Wait()
	}
	if p.t.Failed() {
		p.t.Logf("testutil: standard error of child %d:\n%s", p.Pid(), p.err.all())
	}
}
