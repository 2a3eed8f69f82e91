package shm_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/shm"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// needHuge skips a test that needs n free hugetlb pages of size bytes.
func needHuge(t *testing.T, size int64, n int) {
	t.Helper()
	_, free, err := sys.NrHugepages(size)
	if err != nil {
		t.Skipf("no huge pages of %s here: %v", shm.FormatSize(size), err)
	}
	if free < n {
		t.Skipf("%d huge pages of %s are free, the test needs %d (as root: sysctl -w vm.nr_hugepages=64)",
			free, shm.FormatSize(size), n)
	}
}

// createHuge is create, for pages that may be taken by somebody else between the look and the deed: tests of other
// packages run at the same time.
func createHuge(t *testing.T, o shm.Options) *shm.Segment {
	t.Helper()
	s, err := shm.Create(o)
	if errors.Is(err, unix.ENOMEM) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// checkSegment checks what Create promises for every kind of pages.
func checkSegment(t *testing.T, s *shm.Segment, size int64) {
	t.Helper()
	b := s.Bytes()
	if s.Size() != size || int64(len(b)) != size {
		t.Errorf("size is %d, %d bytes are mapped; want %d", s.Size(), len(b), size)
	}
	for i, v := range b {
		if v != 0 {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
	b[0], b[len(b)-1] = 1, 2
	info, err := s.File().Stat()
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o400 || info.Size() != size {
		t.Errorf("mode %v, size %d", info.Mode(), info.Size())
	}
	fd := s.File().Fd()
	if seals, err := sys.Seals(int(fd)); err != nil || seals&sys.SealFixed != sys.SealFixed {
		t.Errorf("seals %#x, %v", seals, err)
	}
	for _, n := range []int64{0, size - s.PageSize(), size + s.PageSize()} {
		if err := unix.Ftruncate(int(fd), n); err != unix.EPERM {
			t.Errorf("ftruncate to %d: %v, want EPERM", n, err)
		}
	}
	if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v: not close-on-exec", flags, err)
	}
	checkPages(t, s)
}

// checkPages compares what the segment says of its pages with what the kernel says of the mapping.
func checkPages(t *testing.T, s *shm.Segment) {
	t.Helper()
	m := smapsOf(t, s.Bytes())
	huge := m["ShmemPmdMapped"] + m["FilePmdMapped"]
	want, pages := m["KernelPageSize"], shm.Pages4KiB
	switch {
	case want == gib:
		pages = shm.Pages1GiB
	case want == 2*mib:
		pages = shm.Pages2MiB
	case huge > 0 && huge == s.Size()/(2*mib)*(2*mib):
		want, pages = 2*mib, shm.PagesTHP
	}
	if s.Pages() != pages || s.PageSize() != want {
		t.Errorf("segment says %v, %d; the kernel says %v, %d", s.Pages(), s.PageSize(), pages, want)
	}
	if present := m["Rss"] + m["Shared_Hugetlb"] + m["Private_Hugetlb"]; present != s.Size() {
		t.Errorf("%d of %d bytes are present", present, s.Size())
	}
}

func TestCreateOnOrdinaryPages(t *testing.T) {
	page := int64(os.Getpagesize())
	for asked, want := range map[int64]int64{1: page, page: page, page + 1: 2 * page, 3*mib + 5: 3*mib + page} {
		checkSegment(t, create(t, shm.Options{Name: "four", Size: asked, Pages: shm.Pages4KiB}), want)
	}
}

func TestCreateAutoNeverFailsForWantOfHugePages(t *testing.T) {
	page := int64(os.Getpagesize())
	for asked, want := range map[int64]int64{1: page, page: page, 2 * mib: 2 * mib, 2*mib + 1: 2*mib + page, 8 * mib: 8 * mib} {
		checkSegment(t, create(t, shm.Options{Size: asked}), want)
	}
}

func TestCreateAutoTakesHugePagesIfThereAreEnough(t *testing.T) {
	needHuge(t, 2*mib, 3)
	s := create(t, shm.Options{Size: 4 * mib})
	if s.Pages() != shm.Pages2MiB {
		needHuge(t, 2*mib, 3) // they may be gone
		t.Errorf("got %v", s.Pages())
	}
	if s := create(t, shm.Options{Size: 2*mib + 4096}); s.Pages() == shm.Pages2MiB {
		t.Errorf("got %v for a size that is no multiple", s.Pages())
	}
}

func TestCreateAutoFallsBackWhenTheHugePagesDoNotSuffice(t *testing.T) {
	needHuge(t, 2*mib, 1)
	total, free, err := sys.NrHugepages(2 * mib)
	if err != nil {
		t.Fatal(err)
	}
	s := create(t, shm.Options{Size: int64(max(total, free)+1) * 2 * mib})
	if s.Pages() == shm.Pages2MiB {
		t.Errorf("got %v", s.Pages())
	}
	checkPages(t, s)
}

func TestCreateOn2MiBPages(t *testing.T) {
	needHuge(t, 2*mib, 4)
	checkSegment(t, createHuge(t, shm.Options{Size: 8 * mib, Pages: shm.Pages2MiB, Lock: true}), 8*mib)
}

func TestCreateOn1GiBPages(t *testing.T) {
	needHuge(t, gib, 1)
	checkSegment(t, createHuge(t, shm.Options{Size: gib, Pages: shm.Pages1GiB}), gib)
}

func TestCreateLocked(t *testing.T) {
	limit, err := sys.MemlockLimit()
	if err != nil {
		t.Fatal(err)
	}
	if limit >= 0 && limit < 64<<10 {
		t.Skipf("RLIMIT_MEMLOCK is %d", limit)
	}
	s := create(t, shm.Options{Size: 64 << 10, Pages: shm.Pages4KiB, Lock: true})
	if got := smapsOf(t, s.Bytes())["Locked"]; got != 64<<10 {
		t.Errorf("%d bytes are locked", got)
	}
}

func TestCreateOnANUMANode(t *testing.T) {
	nodes, err := sys.Nodes()
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) == 0 {
		t.Skip("kernel without NUMA")
	}
	name := uniqueName()
	s, err := shm.Create(shm.Options{Name: name, Size: mib, Pages: shm.Pages4KiB, Node: &nodes[0]})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("mbind is not allowed here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	checkSegment(t, s, mib)
	maps, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:"+name) {
			for _, want := range []string{fmt.Sprintf("bind:%d", nodes[0]), fmt.Sprintf("N%d=%d", nodes[0], mib/os.Getpagesize())} {
				if !slices.Contains(strings.Fields(line), want) {
					t.Errorf("no %q in %q", want, line)
				}
			}
			return
		}
	}
	t.Errorf("no line with memfd:%s in numa_maps", name)
}

func TestNameIsInTheMaps(t *testing.T) {
	long := strings.Repeat("n", 249)
	for given, want := range map[string]string{"": "hugebus", "orders": "orders", long: long} {
		s := create(t, shm.Options{Name: given, Size: 1, Pages: shm.Pages4KiB})
		if !mapped(t, want) {
			t.Errorf("%q: no memfd:%s", given, want)
		}
		s.Close()
	}
}
