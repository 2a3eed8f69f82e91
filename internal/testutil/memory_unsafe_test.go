package testutil_test

import (
	"testing"
	"unsafe"

	"github.com/hugebus/hugebus/internal/testutil"
)

func TestAlignedBytes(t *testing.T) {
	for _, n := range []int{0, 1, 64, 127, 128, 4096, 100_001} {
		b := testutil.AlignedBytes(n)
		if len(b) != n || cap(b) != n {
			t.Errorf("%d bytes: length %d, capacity %d", n, len(b), cap(b))
		}
		if off := uintptr(unsafe.Pointer(unsafe.SliceData(b))) % 128; off != 0 {
			t.Errorf("%d bytes start %d past a multiple of 128", n, off)
		}
		for i, x := range b {
			if x != 0 {
				t.Fatalf("%d bytes: byte %d is %d", n, i, x)
			}
		}
	}
}
