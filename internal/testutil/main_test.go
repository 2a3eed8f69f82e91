package testutil_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/edsrzf/mmap-go"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	testutil.Register("echo", echo)
	testutil.Register("exit", func(args []string) {
		status, _ := strconv.Atoi(args[0])
		os.Exit(status)
	})
	testutil.Register("hang", func([]string) { fmt.Println("hanging"); select {} })
	testutil.Register("stop", func([]string) {
		resumed := make(chan os.Signal, 1)
		signal.Notify(resumed, syscall.SIGCONT)
		fmt.Fprintln(os.Stderr, "failpoint here")
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Signal(syscall.SIGSTOP)
		<-resumed
		fmt.Println("resumed")
	})
	testutil.Register("nest", nest)
	testutil.Register("files", func([]string) {
		f := testutil.File(0)
		defer f.Close()
		text, err := io.ReadAll(f)
		fmt.Println(string(text), err)
	})
	testutil.Register("environment", func([]string) {
		fmt.Println(os.Getenv("HUGEBUS_TEST_ROLE") + os.Getenv("HUGEBUS_TEST_PARENT_FD") + "|" + os.Getenv("COLOUR"))
	})
}

// echo writes its arguments, then every line of its input.
func echo(args []string) {
	fmt.Println(strings.Join(args, " "))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println("got", in.Text())
		fmt.Fprintln(os.Stderr, "noted", in.Text())
	}
}

// nest starts a child that stops, says its number, and waits to be killed.
func nest([]string) {
	testing.Init()
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "nest", F: func(t *testing.T) {
		child := testutil.Start(t, "stop")
		child.AtFailpoint("here")
		fmt.Println(child.Pid())
		select {}
	}}}, nil, nil)
}

func TestMain(m *testing.M) { testutil.Main(m) }

// leakEnv tells TestLeaveSomething what to leave behind.
const leakEnv = "HUGEBUS_TESTUTIL_LEAVE"

var kept []any // what finalizers would close otherwise

// TestLeaveSomething does nothing, except in children of TestMainFindsWhatIsLeft.
func TestLeaveSomething(t *testing.T) {
	switch os.Getenv(leakEnv) {
	case "goroutine":
		go func() { select {} }()
	case "descriptor":
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, f)
	case "mapping":
		fd, err := sys.MemfdCreate("left-over", 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "left-over")
		defer f.Close()
		if err := f.Truncate(4096); err != nil {
			t.Fatal(err)
		}
		m, err := mmap.Map(f, mmap.RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, m)
	case "failure":
		t.Fatal("failing as told")
	}
}

func leave(t *testing.T, what string, env ...string) *testutil.Proc {
	t.Helper()
	return testutil.Launch(t, testutil.Child{
		Args: []string{"-test.run=^TestLeaveSomething$"},
		Env:  append(env, leakEnv+"="+what),
	})
}

func TestMainFindsWhatIsLeft(t *testing.T) {
	for what, want := range map[string]string{
		"goroutine":  "found unexpected goroutines",
		"descriptor": "1 x descriptor of /dev/null",
		"mapping":    "memfd:left-over",
	} {
		t.Run(what, func(t *testing.T) {
			p := leave(t, what)
			if s := p.Wait(); s.ExitCode() != 1 || !strings.Contains(p.Stderr(), want) {
				t.Errorf("%v\n%s\nwant status 1 and %q", s, p.Stderr(), want)
			}
		})
	}
}

func TestMainPassesWhatLeavesNothing(t *testing.T) {
	p := leave(t, "nothing")
	p.Succeed()
	if !strings.Contains(p.Stdout(), "PASS") {
		t.Errorf("no test ran: %s", p.Stdout())
	}
}

func TestMainKeepsTheTestsOwnFailure(t *testing.T) {
	p := leave(t, "failure")
	if s := p.Wait(); s.ExitCode() != 1 || !strings.Contains(p.Stdout(), "failing as told") {
		t.Errorf("%v\n%s", s, p.Stdout())
	}
}

func TestWatchdogEndsAChildThatHangs(t *testing.T) {
	p := testutil.Launch(t, testutil.Child{Role: "hang", Env: []string{testutil.WatchdogEnv + "=300ms"}})
	p.Expect("hanging")
	if s := p.Wait(); s.ExitCode() != 2 {
		t.Fatalf("%v", s)
	}
	for _, want := range []string{"still running after 300ms (HUGEBUS_WATCHDOG)", "testutil_test.init"} {
		if !strings.Contains(p.Stderr(), want) {
			t.Errorf("no %q in:\n%s", want, p.Stderr())
		}
	}
}

func TestWatchdogRefusesWhatIsNoDuration(t *testing.T) {
	for _, limit := range []string{"soon", "-1s", "0"} {
		p := leave(t, "nothing", testutil.WatchdogEnv+"="+limit)
		if s := p.Wait(); s.ExitCode() != 2 || !strings.Contains(p.Stderr(), `is "`+limit+`": use a duration`) {
			t.Errorf("%v\n%s", s, p.Stderr())
		}
	}
}
