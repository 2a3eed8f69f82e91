package shm_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/testutil"
	"github.com/hugebus/hugebus/shm"
)

// nobody is the user without rights.
const nobody = 65534

func init() { testutil.Register("attacker", attacker) }

// attacker is another user, who was handed a descriptor for reading and wants to write. It says what came of each
// try.
func attacker([]string) {
	if err := becomeNobody(); err != nil {
		fmt.Println("setup:", err)
		return
	}
	f := testutil.File(0)
	defer f.Close()
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	again, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		fmt.Println("open:", err.(*os.PathError).Err)
	} else {
		fmt.Println("open: worked")
		again.Close()
	}
	fmt.Println("chmod:", result(unix.Fchmod(int(f.Fd()), 0o777)))
	b, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	fmt.Println("mmap:", result(err))
	if err == nil {
		unix.Munmap(b)
	}
	s, err := shm.Open(f, false)
	if err != nil {
		fmt.Println("read:", err)
		return
	}
	defer s.Close()
	fmt.Printf("read: %s\n", s.Bytes()[:5])
}

func result(err error) string {
	if err == nil {
		return "worked"
	}
	return err.Error()
}

func becomeNobody() error {
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setgid(nobody); err != nil {
		return err
	}
	if err := syscall.Setuid(nobody); err != nil {
		return err
	}
	// Without this, /proc/self/fd belongs to root after the change, and opening anything there fails for that reason.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
}

func TestAnotherUserCannotOpenASegmentAgainForWriting(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	eachKind(t, func(t *testing.T, s *shm.Segment) {
		copy(s.Bytes(), "frame")
		f := reopened(t, s, false)
		defer f.Close()
		p := testutil.Launch(t, testutil.Child{Role: "attacker", Files: []*os.File{f}})
		p.Expect("open: permission denied")
		p.Expect("chmod: operation not permitted")
		p.Expect("mmap: permission denied")
		p.Expect("read: frame")
		p.Succeed()
	})
}

// The test above is worth nothing unless the attack works on a memfd that is not protected.
func TestTheAttackWorksOnAMemfdOfDefaultMode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	raw := rawMemfd(t, 4096, 0)
	defer raw.Close()
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", raw.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := testutil.Launch(t, testutil.Child{Role: "attacker", Files: []*os.File{f}})
	p.Expect("open: worked")
	p.Expect("chmod: operation not permitted")
	p.Expect("mmap: permission denied")
	p.Expect("read: shm: open: " + shm.ErrNotSealed.Error())
	p.Succeed()
}
