package sys

import (
	"os"
	"runtime"
	"testing"
)

func TestTLBMissesAreCountedWhereTheMachineCanCount(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := CountTLBMisses()
	if err != nil {
		t.Skipf("this machine counts none: %v", err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	before, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	// More pages than any data TLB holds, again and again, until one is missed.
	memory := make([]byte, 256<<20)
	for {
		for i := 0; i < len(memory); i += os.Getpagesize() {
			memory[i]++
		}
		after, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		if after > before {
			return
		}
	}
}
