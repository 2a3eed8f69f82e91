package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/hugebus/hugebus/internal/testutil"
)

// childWord begins the arguments of this test binary when it is a process of the demo.
const childWord = "demo-process"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == childWord {
		signal.Ignore(syscall.SIGINT)
		if err := Child(context.Background(), os.Args[2], os.Args[3], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testutil.Main(m)
}

func self(kind, arg string) *exec.Cmd {
	return exec.Command(os.Args[0], childWord, kind, arg)
}

// fresh is a tally that goes with the test.
func fresh(t *testing.T, frames uint64) *tally {
	t.Helper()
	tally, err := newTally("test", frames)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tally.close(); err != nil {
			t.Error(err)
		}
	})
	return tally
}

// payload is frame number seq.
func payload(seq uint64, sent time.Duration) []byte {
	b := make([]byte, payloadSize(seq))
	fill(b, seq, sent)
	return b
}
