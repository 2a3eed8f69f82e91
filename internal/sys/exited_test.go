package sys

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestExitedSeesTheEndOfAProcess(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(os.NewSyscallError("pidfd_open", err))
	}
	defer unix.Close(pidfd)
	if dead, err := Exited(pidfd, 0); err != nil || dead {
		t.Errorf("while it runs: %v, %v", dead, err)
	}
	in.Close()
	if dead, err := Exited(pidfd, 30*time.Second); err != nil || !dead {
		t.Errorf("after its input ended: %v, %v", dead, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
