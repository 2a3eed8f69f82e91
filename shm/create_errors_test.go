package shm_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/shm"
)

func node(n int) *int { return &n }

func TestCreateErrors(t *testing.T) {
	for _, c := range []struct {
		o    shm.Options
		is   error
		want string // regular expression
	}{
		{shm.Options{}, unix.EINVAL, `^shm: create "hugebus", 0B: size 0 must be above 0: invalid argument$`},
		{shm.Options{Name: "x", Size: -4096}, unix.EINVAL, `^shm: create "x", -4KiB: size -4096 must be above 0: invalid argument$`},
		{shm.Options{Size: math.MaxInt64}, unix.EINVAL, `: size must be at most 4194304TiB: invalid argument$`},
		{shm.Options{Size: 2*mib + 4096, Pages: shm.Pages2MiB}, unix.EINVAL,
			`^shm: create "hugebus", 2052KiB: size must be a multiple of the page size 2MiB: use 4MiB, or pages "auto": invalid argument$`},
		{shm.Options{Size: 64 * mib, Pages: shm.Pages1GiB}, unix.EINVAL,
			`: size must be a multiple of the page size 1GiB: use 1GiB, or pages "auto": invalid argument$`},
		{shm.Options{Size: 4096, Pages: 77}, unix.EINVAL,
			`: Pages\(77\) is not a page size: use auto, 1GiB, 2MiB, thp or 4KiB: invalid argument$`},
		{shm.Options{Size: 4096, Name: strings.Repeat("n", 250)}, unix.EINVAL, `: name has 250 bytes, at most 249 are allowed: invalid argument$`},
		{shm.Options{Size: 4096, Name: "a\x00b"}, unix.EINVAL, `^shm: create "a\\x00b", 4KiB: name contains a zero byte: invalid argument$`},
		{shm.Options{Size: 4096, Node: node(-1)}, unix.EINVAL, `: there is no NUMA node -1 \(online: \[.*\]\): leave the node out, or use one of these: `},
		{shm.Options{Size: 4096, Node: node(999)}, unix.EINVAL, `: there is no NUMA node 999 \(online: `},
		{shm.Options{Size: 1 << 50, Pages: shm.Pages4KiB}, unix.ENOMEM,
			`^shm: create "hugebus", 1024TiB: needs 1024TiB, [0-9.]+[GM]iB are available \(.+, less 1/32 that is left alone\): use a smaller size, or free memory: cannot allocate memory$`},
		{shm.Options{Size: 1 << 50}, unix.ENOMEM, `: needs 1024TiB, [0-9.]+[GM]iB are available `},
		{shm.Options{Size: 1 << 50, Node: node(0)}, unix.ENOMEM, `: needs 1024TiB, [0-9.]+[GM]iB are available `},
	} {
		s, err := shm.Create(c.o)
		if err == nil {
			s.Close()
			t.Errorf("%+v: no error", c.o)
			continue
		}
		if c.o.Node != nil && *c.o.Node == 0 && strings.Contains(err.Error(), "there is no NUMA node 0") {
			continue // a kernel without NUMA
		}
		if !errors.Is(err, c.is) || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%+v: got %q, want %q", c.o, err, c.want)
		}
	}
}

func TestCreateSaysHowManyHugePagesAreMissing(t *testing.T) {
	for _, p := range []shm.Pages{shm.Pages2MiB, shm.Pages1GiB} {
		size := map[shm.Pages]int64{shm.Pages2MiB: 2 * mib, shm.Pages1GiB: gib}[p]
		total, free, err := sys.NrHugepages(size)
		if err != nil {
			_, cerr := shm.Create(shm.Options{Size: size, Pages: p})
			want := fmt.Sprintf("this machine has no huge pages of %v (it has: ", p)
			if !errors.Is(cerr, unix.ENODEV) || !strings.Contains(cerr.Error(), want) {
				t.Errorf("got %v, want %q", cerr, want)
			}
			continue
		}
		need := max(total, free) + 7
		_, err = shm.Create(shm.Options{Name: "x", Size: int64(need) * size, Pages: p})
		if !errors.Is(err, unix.ENOMEM) {
			t.Errorf("got %v", err)
			continue
		}
		// How many are free may change at any moment; but what the error says has to add up.
		found := regexp.MustCompile(`: needs (\d+) huge pages of ` + p.String() + `, (\d+) of (\d+) are free: as root type: `).
			FindStringSubmatch(err.Error())
		if found == nil || found[1] != strconv.Itoa(need) {
			t.Errorf("got %q, want %d pages", err, need)
			continue
		}
		saidFree, _ := strconv.Atoi(found[2])
		saidTotal, _ := strconv.Atoi(found[3])
		count := saidTotal + need - saidFree
		command := fmt.Sprintf("echo %d > /sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages", count, size>>10)
		if std, _ := sys.MemInfo("Hugepagesize"); std == size {
			command = fmt.Sprintf("sysctl -w vm.nr_hugepages=%d", count)
		}
		boot := fmt.Sprintf("hugepagesz=1G hugepages=%d", count)
		if !strings.Contains(err.Error(), command) || strings.Contains(err.Error(), boot) != (size == gib) {
			t.Errorf("got %v, want %q", err, command)
		}
	}
}

func TestCreateLeavesNothingBehindAfterAnError(t *testing.T) {
	name := uniqueName()
	if _, err := shm.Create(shm.Options{Name: name, Size: 1 << 50}); err == nil {
		t.Fatal("no error")
	}
	if mapped(t, name) {
		t.Error("still mapped")
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.Contains(to, name) {
			t.Errorf("descriptor %s is still open", fd.Name())
		}
	}
}

func init() { testutil.Register("lock", lockTooMuch) }

// lockTooMuch runs as a user without rights and with little memory to lock.
func lockTooMuch([]string) {
	limit := syscall.Rlimit{Cur: 16 << 10, Max: 16 << 10}
	if err := syscall.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		fmt.Println(err)
		return
	}
	if os.Geteuid() == 0 {
		if err := syscall.Setuid(nobody); err != nil {
			fmt.Println(err)
			return
		}
	}
	s, err := shm.Create(shm.Options{Name: "x", Size: mib, Pages: shm.Pages4KiB, Lock: true})
	if err == nil {
		s.Close()
	}
	fmt.Println(errors.Is(err, unix.ENOMEM), err)
}

func TestCreateLockedBeyondTheLimit(t *testing.T) {
	p := testutil.Start(t, "lock")
	const want = `true shm: create "x", 1MiB: lock 1MiB in memory (RLIMIT_MEMLOCK is 16KiB): raise it with ulimit -l, or ` +
		`LimitMEMLOCK=infinity in the systemd unit, or give the program CAP_IPC_LOCK; or do not lock: `
	if got := p.Line(); !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	p.Succeed()
}
