package doorbell_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/hugebus/hugebus/internal/doorbell"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	// The first Bell makes the netpoller open descriptors of its own, which stay.
	b, err := doorbell.New()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	b.Close()
	before := countDescriptors()
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if after := countDescriptors(); after != before && code == 0 {
		fmt.Fprintf(os.Stderr, "%d descriptors at the start, %d at the end\n", before, after)
		code = 1
	}
	os.Exit(code)
}

func countDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	return len(entries)
}
