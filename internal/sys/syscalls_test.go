package sys_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// helper starts this test binary as a program that does what TestHelper says.
func helper(t *testing.T, what string) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), "HUGEBUS_HELPER="+what)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, in, out
}

// TestHelper is the program of helper.
func TestHelper(t *testing.T) {
	switch os.Getenv("HUGEBUS_HELPER") {
	case "ask": // makes 5,000 system calls for each byte of input, and answers
		one := make([]byte, 1)
		for {
			if _, err := os.Stdin.Read(one); err != nil {
				os.Exit(0)
			}
			for range 5000 {
				unix.Getppid()
			}
			_, _ = os.Stdout.Write(one)
		}
	case "busy": // writes for ever
		block := make([]byte, 4096)
		for {
			if _, err := os.Stdout.Write(block); err != nil {
				os.Exit(0)
			}
		}
	}
}

func TestSystemCallsAreCounted(t *testing.T) {
	cmd, in, out := helper(t, "ask")
	ask := func() {
		t.Helper()
		if _, err := in.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	for range 3 { // it can be taken hold of again and again
		c, err := sys.CountSyscalls(cmd.Process.Pid)
		if errors.Is(err, unix.EPERM) {
			t.Logf("not allowed here, as the demo then says too: %v", err)
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		ask()
		calls, err := c.Stop()
		// Beside the 5,000: the read, the write, and what the Go runtime does.
		if err != nil || calls < 5002 || calls > 6000 {
			t.Errorf("%d calls, %v", calls, err)
		}
		ask() // it goes on
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program: %v", err)
	}
}

func TestCountingAProgramThatDies(t *testing.T) {
	cmd, _, out := helper(t, "busy")
	if _, err := io.ReadFull(out, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	c, err := sys.CountSyscalls(cmd.Process.Pid)
	if errors.Is(err, unix.EPERM) {
		t.Logf("not allowed here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 256<<10)); err != nil { // more than a pipe holds
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	if c != nil {
		if calls, err := c.Stop(); err != nil || calls < 40 {
			t.Errorf("%d calls, %v", calls, err)
		}
	}
	_ = cmd.Wait() // killed, or ECHILD if the counter has its status
}

func TestTracingCanBeAllowed(t *testing.T) {
	if err := sys.AllowTracing(); err != nil {
		t.Error(err)
	}
}

func TestCountingNobody(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := sys.CountSyscalls(cmd.Process.Pid); !errors.Is(err, unix.ESRCH) {
		t.Errorf("error %v", err)
	}
}
