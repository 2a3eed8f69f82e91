package shm_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/shm"
)

// shmemTHP returns what the kernel does about transparent huge pages in shared memory.
func shmemTHP(t *testing.T) string {
	t.Helper()
	word, err := sys.ShmemTHP()
	if err != nil {
		t.Skipf("kernel without transparent huge pages: %v", err)
	}
	return word
}

// setShmemTHP changes it until the test ends. A lock on the file keeps other runs of these tests from putting back
// what this one has set.
func setShmemTHP(t *testing.T, word string) {
	t.Helper()
	shmemTHP(t)
	f, err := os.OpenFile(sys.ShmemTHPFile, os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("only root can set it: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	before := shmemTHP(t)
	if _, err := f.WriteString(word); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := f.WriteAt([]byte(before), 0); err != nil {
			t.Errorf("put back %q: %v", before, err)
		}
	})
}

func TestCreateOnTransparentHugePages(t *testing.T) {
	setShmemTHP(t, "advise")
	s := createHuge(t, shm.Options{Size: 8 * mib, Pages: shm.PagesTHP})
	checkSegment(t, s, 8*mib)
	if s.Pages() != shm.PagesTHP || s.PageSize() != 2*mib {
		t.Errorf("got %v, %d", s.Pages(), s.PageSize())
	}
	for _, writable := range []bool{false, true} {
		o := open(t, reopened(t, s, writable), writable)
		checkPages(t, o)
		if o.Pages() != shm.PagesTHP {
			t.Errorf("another mapping, writable %v: %v", writable, o.Pages())
		}
	}
}

func TestCreateWithOrdinaryPagesGetsThem(t *testing.T) {
	setShmemTHP(t, "always")
	s := create(t, shm.Options{Size: 4 * mib, Pages: shm.Pages4KiB})
	if s.Pages() != shm.Pages4KiB {
		t.Errorf("got %v", s.Pages())
	}
	checkPages(t, s)
}

// With transparent huge pages allowed, auto takes them, also when the end of the segment is less than one; a segment
// smaller than one has none.
func TestCreateAutoWithTransparentHugePages(t *testing.T) {
	setShmemTHP(t, "advise")
	for _, size := range []int64{4*mib + 4096, 64 << 10} {
		s := create(t, shm.Options{Size: size})
		checkSegment(t, s, size)
		if s.Pages() == shm.Pages2MiB || size < 2*mib && s.Pages() != shm.Pages4KiB {
			t.Errorf("size %d: %v", size, s.Pages())
		}
	}
}

func TestCreateOnTransparentHugePagesThatAreOff(t *testing.T) {
	for _, word := range []string{"never", "deny"} {
		t.Run(word, func(t *testing.T) {
			setShmemTHP(t, word)
			_, err := shm.Create(shm.Options{Name: "x", Size: 2 * mib, Pages: shm.PagesTHP})
			const file = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
			want := `shm: create "x", 2MiB: transparent huge pages are off for shared memory (` + file + ` is "` + word +
				`"): as root type: echo advise > ` + file + `, or use pages "auto": no such device`
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			s := create(t, shm.Options{Size: 2*mib + 4096})
			if s.Pages() != shm.Pages4KiB {
				t.Errorf("auto got %v", s.Pages())
			}
			checkPages(t, s)
		})
	}
}

func TestCreateOnTransparentHugePagesNeedsAMultiple(t *testing.T) {
	setShmemTHP(t, "advise")
	_, err := shm.Create(shm.Options{Size: 3 * mib, Pages: shm.PagesTHP})
	const want = `size must be a multiple of the transparent huge page, 2MiB: use 4MiB, or pages "auto": invalid argument`
	if !errors.Is(err, unix.EINVAL) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}
