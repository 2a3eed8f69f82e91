package shm_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// smapsOf returns the numbers, in bytes, that the kernel has in /proc/self/smaps for the mapping mem.
func smapsOf(t *testing.T, mem []byte) map[string]int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	// Sound: only the number of the address is used.
	start := uintptr(unsafe.Pointer(&mem[0]))
	_, rest, ok := strings.Cut("\n"+string(text), fmt.Sprintf("\n%08x-%08x ", start, start+uintptr(len(mem))))
	if !ok {
		t.Fatalf("no mapping %x-%x in smaps", start, start+uintptr(len(mem)))
	}
	numbers := make(map[string]int64)
	for line := range strings.Lines(rest) {
		var n int64
		key, value, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscanf(value, "%d kB\n", &n); err == nil {
			numbers[key] = n << 10
		}
		if key == "VmFlags" {
			break
		}
	}
	return numbers
}
