package shm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

const smapsText = `00400000-00401000 r-xp 00000000 08:01 1 /bin/x
Size:                  4 kB
ShmemPmdMapped:       64 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0000800000 rw-s 00000000 00:01 7 /memfd:a (deleted)
Size:               8192 kB
ShmemPmdMapped:     4096 kB
FilePmdMapped:      2048 kB
VmFlags: rd wr sh mr mw me ms
7f0000800000-7f0000801000 rw-s 00000000 00:01 8 /memfd:b (deleted)
Size:                  4 kB
ShmemPmdMapped:       32 kB
7f0000900000-7f0000901000 rw-s 00000000 00:01 8 /memfd:c (deleted)
ShmemPmdMapped:        x kB
`

func TestSmapsHuge(t *testing.T) {
	for _, c := range []struct {
		addr uint64
		want int64
		err  string
	}{
		{addr: 0x400000, want: 64 << 10},
		{addr: 0x7f0000000000, want: 6 << 20},
		{addr: 0x7f00007fffff, want: 6 << 20},
		{addr: 0x7f0000800000, want: 32 << 10},
		{addr: 0x7f0000801000, err: "/proc/self/smaps: no mapping at 0x7f0000801000"},
		{addr: 0x7f0000900000, err: "/proc/self/smaps: ShmemPmdMapped: strconv.ParseInt"},
	} {
		got, err := smapsHuge(strings.NewReader(smapsText), c.addr)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%#x: %d, %v; want %d, %q", c.addr, got, err, c.want, c.err)
		}
	}
}

// The way for kernels that cannot populate has to get every page, too.
func TestAllocateGetsEveryPage(t *testing.T) {
	fd, err := sys.MemfdCreate("fallocate", 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "fallocate")
	defer f.Close()
	const size = 1 << 20
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	blocks := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if n := blocks(); n != 0 {
		t.Fatalf("%d bytes are there before", n)
	}
	if err := allocate(f, size); err != nil {
		t.Fatal(err)
	}
	if n := blocks(); n != size {
		t.Errorf("%d bytes are there, want %d", n, size)
	}
	// In tests the seals are not the point; a file that cannot grow shows how an error comes out.
	if err := sys.Seal(fd, sys.SealFixed); err != nil {
		t.Fatal(err)
	}
	if err := allocate(f, 2*size); !errors.Is(err, unix.EPERM) || err.Error() != "fallocate: operation not permitted" {
		t.Errorf("got %v", err)
	}
}

func TestShortageNamesWhatIsMissing(t *testing.T) {
	zero := 0
	cause := os.NewSyscallError("madvise", unix.EFAULT)
	for _, c := range []struct {
		o    Options
		want []string
	}{
		{Options{Size: 1 << 60, Pages: Pages2MiB}, []string{"populate 549755813888 huge pages of 2MiB (free now: ", "as root type: "}},
		{Options{Size: 0, Pages: Pages2MiB}, []string{"populate 0 huge pages", "try again, look at the hugetlb limits of the cgroup, or use pages "}},
		{Options{Size: 8 << 20, Node: &zero}, []string{"populate 8MiB on NUMA node 0 (available now: ", "use a smaller size, or free memory: "}},
	} {
		err := c.o.shortage("populate", cause)
		if !errors.Is(err, unix.ENOMEM) || !errors.Is(err, unix.EFAULT) {
			t.Errorf("%v is not both ENOMEM and EFAULT", err)
		}
		for _, w := range append(c.want, "cannot allocate memory (madvise: bad address)") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("no %q in %q", w, err)
			}
		}
	}
}

// A segment that was made without them stands for memory that is too fragmented.
func TestStrictTransparentHugePagesThatTheKernelDoesNotGive(t *testing.T) {
	s, err := Create(Options{Size: 4 << 20, Pages: Pages4KiB})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := mapping{mem: s.mem, pages: Pages4KiB, pageSize: 4096}
	err = thpPlan{size: 2 << 20, strict: true}.settle(&m)
	const want = "the kernel gave transparent huge pages for 0B of 4MiB only, memory is too fragmented: as root type: " +
		`echo 1 > /proc/sys/vm/compact_memory, and try again, or use pages "2MiB" or "auto": cannot allocate memory`
	if !errors.Is(err, unix.ENOMEM) || err.Error() != want {
		t.Errorf("strict: %v", err)
	}
	if err := (thpPlan{size: 2 << 20}).settle(&m); err != nil || m.pages != Pages4KiB || m.pageSize != 4096 {
		t.Errorf("not strict: %v, %v, %d", err, m.pages, m.pageSize)
	}
}

func TestRoughly(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 64 << 20: "64MiB", 24911020032: "23.2GiB", 1 << 50: "1024TiB", 123456789: "117.7MiB", 1000: "1000B", 3000: "2.9KiB", 4096: "4KiB", 1<<62 + 1: "4194304.0TiB",
	} {
		if got := roughly(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
