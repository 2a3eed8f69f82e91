package sys_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// newMemfd returns a memfd of size bytes and its mapping, both gone at the end of the test.
func newMemfd(t *testing.T, size int) (int, []byte) {
	t.Helper()
	fd, err := sys.MemfdCreate("hugebus-test", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return fd, b
}

func TestMemfdSeals(t *testing.T) {
	fd, _ := newMemfd(t, 4096)
	if seals, err := sys.Seals(fd); err != nil || seals&sys.SealFixed != 0 {
		t.Fatalf("new: seals %#x, %v", seals, err)
	}
	if err := sys.Seal(fd, sys.SealFixed); err != nil {
		t.Fatal(err)
	}
	if seals, err := sys.Seals(fd); err != nil || seals&sys.SealFixed != sys.SealFixed {
		t.Errorf("sealed: seals %#x, %v", seals, err)
	}
	for _, size := range []int64{0, 2048, 8192} {
		if err := unix.Ftruncate(fd, size); err != unix.EPERM {
			t.Errorf("ftruncate to %d: %v, want EPERM", size, err)
		}
	}
	if err := sys.Seal(fd, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal: %v, want EPERM", err)
	}
	if _, err := sys.Seals(newEventFD(t)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("seals of an eventfd: %v, want EINVAL", err)
	}
}

func TestMemfdErrors(t *testing.T) {
	for _, size := range []int64{-4096, 3 << 20} {
		if _, err := sys.MemfdCreate("x", size); err == nil || !strings.Contains(err.Error(), "is not a power of two") {
			t.Errorf("page size %d: %v", size, err)
		}
	}
	// No architecture has pages of 8 KiB by hugetlb.
	if _, err := sys.MemfdCreate("x", 8<<10); !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) {
		t.Errorf("page size 8 KiB: %v", err)
	}
	// Longer than memfd_create takes.
	if _, err := sys.MemfdCreate(strings.Repeat("n", 300), 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("long name: %v", err)
	}
}

func TestMemfdWithHugePagesTellsItsPageSize(t *testing.T) {
	sizes, err := sys.HugePageSizes()
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range sizes {
		fd, err := sys.MemfdCreate("hugebus-test", size)
		if err != nil {
			t.Errorf("page size %d: %v", size, err)
			continue
		}
		if got, err := sys.HugetlbPageSize(fd); err != nil || got != size {
			t.Errorf("page size %d: reported as %d, %v", size, got, err)
		}
		unix.Close(fd)
	}
	fd, _ := newMemfd(t, 4096)
	if got, err := sys.HugetlbPageSize(fd); err != nil || got != 0 {
		t.Errorf("ordinary memfd: reported as %d, %v", got, err)
	}
}

func TestPopulateMakesPagesPresent(t *testing.T) {
	for _, write := range []bool{false, true} {
		_, b := newMemfd(t, 64<<10)
		if n := resident(t, b); n != 0 {
			t.Fatalf("%d pages present before", n)
		}
		if err := sys.Populate(b, write); errors.Is(err, unix.EINVAL) {
			t.Skip("kernel older than 5.14")
		} else if err != nil {
			t.Fatal(err)
		}
		if got, want := resident(t, b), len(b)/os.Getpagesize(); got != want {
			t.Errorf("write %v: %d pages present, want %d", write, got, want)
		}
	}
}

func TestPopulateBeyondTheFileIsAnErrorAndNotSIGBUS(t *testing.T) {
	fd, b := newMemfd(t, 64<<10)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	if err := sys.Populate(b, true); !errors.Is(err, unix.EFAULT) {
		t.Errorf("got %v, want EFAULT", err)
	}
}

func TestPopulateForWritingNeedsAWritableMapping(t *testing.T) {
	fd, _ := newMemfd(t, 4096)
	b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if err := sys.Populate(b, true); err == nil || !strings.HasPrefix(err.Error(), "madvise MADV_POPULATE_WRITE: ") {
		t.Errorf("got %v", err)
	}
}

func TestBindNode(t *testing.T) {
	nodes, err := sys.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) == 0 {
		t.Skip("kernel without NUMA")
	}
	_, b := newMemfd(t, 64<<10)
	if err := sys.BindNode(b, nodes[0]); errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("mbind is not allowed here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := sys.Populate(b, true); err != nil {
		t.Fatal(err)
	}
	if err := sys.BindNode(b, 1023); !errors.Is(err, unix.EINVAL) {
		t.Errorf("node 1023: %v, want EINVAL", err)
	}
	for _, node := range []int{-1, 1024} {
		if err := sys.BindNode(b, node); err == nil || !strings.Contains(err.Error(), "is not in 0 to 1023") {
			t.Errorf("node %d: %v", node, err)
		}
	}
}

func TestLock(t *testing.T) {
	limit, err := sys.MemlockLimit()
	if err != nil {
		t.Fatal(err)
	}
	_, b := newMemfd(t, 16<<10)
	if limit >= 0 && limit < int64(len(b)) {
		t.Skipf("RLIMIT_MEMLOCK is %d", limit)
	}
	if err := sys.Lock(b); err != nil {
		t.Error(err)
	}
}

func TestAdviseHuge(t *testing.T) {
	if _, err := sys.ShmemTHP(); err != nil {
		t.Skipf("kernel without transparent huge pages: %v", err)
	}
	_, b := newMemfd(t, 4<<20)
	for _, huge := range []bool{true, false} {
		if err := sys.AdviseHuge(b, huge); err != nil {
			t.Errorf("huge %v: %v", huge, err)
		}
	}
}
