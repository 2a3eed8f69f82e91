package sys_test

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

func TestMembarrier(t *testing.T) {
	for range 2 { // registering again must be harmless
		b, err := sys.MembarrierRegister()
		if err != nil {
			t.Fatal(err)
		}
		if err := sys.MembarrierGlobal(); (err == nil) != b.Global {
			t.Errorf("MembarrierGlobal: %v, but Barriers is %+v", err, b)
		}
		if err := sys.MembarrierPrivate(); (err == nil) != b.Private {
			t.Errorf("MembarrierPrivate: %v, but Barriers is %+v", err, b)
		}
	}
}

func TestPinThread(t *testing.T) {
	before, err := sys.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(before) == 0 || !slices.IsSorted(before) {
		t.Fatalf("allowed processors: %v", before)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked, so that the thread ends with the goroutine and stays pinned for nobody else.
		runtime.LockOSThread()
		for _, cpu := range before {
			if err := sys.PinThread(cpu); err != nil {
				t.Error(err)
				return
			}
			if now, err := sys.AllowedCPUs(); err != nil || !slices.Equal(now, []int{cpu}) {
				t.Errorf("pinned to %d: allowed %v, %v", cpu, now, err)
			}
		}
	}()
	<-done
}

func TestPinThreadErrors(t *testing.T) {
	for _, cpu := range []int{-1, 1024} {
		if err := sys.PinThread(cpu); err == nil || !strings.Contains(err.Error(), "not in 0 to 1023") {
			t.Errorf("cpu %d: %v", cpu, err)
		}
	}
	// No machine that runs these tests has 1,024 processors.
	if err := sys.PinThread(1023); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "this thread may use [") {
		t.Errorf("cpu 1023: %v", err)
	}
}

func TestPeer(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])

	pid, uid, gid, err := sys.PeerCred(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	if int(pid) != os.Getpid() || int(uid) != os.Geteuid() || int(gid) != os.Getegid() {
		t.Errorf("peer is %d %d %d", pid, uid, gid)
	}
	groups, err := sys.PeerGroups(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range own {
		if !slices.Contains(groups, uint32(g)) {
			t.Errorf("group %d is missing in %v", g, groups)
		}
	}
	if len(groups) != len(own) {
		t.Errorf("%d groups, want %d", len(groups), len(own))
	}
	pidfd, err := sys.PeerPIDFD(fds[0])
	if errors.Is(err, unix.ENOPROTOOPT) {
		t.Skip("kernel without SO_PEERPIDFD")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil {
		t.Errorf("the pidfd does not reach this process: %v", err)
	}
	if flags, err := unix.FcntlInt(uintptr(pidfd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("pidfd flags %#x, %v: not close-on-exec", flags, err)
	}
}

// A process may have more groups than the first look has room for.
func TestPeerGroupsOfManyGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can have more groups")
	}
	want := make([]int, 100)
	for i := range want {
		want[i] = 1000 + i
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// setgroups as a raw call changes this thread only, and the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := setThreadGroups(want); err != nil {
			t.Error(err)
			return
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fds[0])
		defer unix.Close(fds[1])
		got, err := sys.PeerGroups(fds[0])
		if err != nil || len(got) != len(want) {
			t.Errorf("%d groups, %v; want %d", len(got), err, len(want))
			return
		}
		for i := range want {
			if !slices.Contains(got, uint32(want[i])) {
				t.Errorf("group %d is missing", want[i])
			}
		}
	}()
	<-done
}

func TestPeerErrors(t *testing.T) {
	fd := newEventFD(t)
	if _, _, _, err := sys.PeerCred(fd); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("PeerCred: %v", err)
	}
	if _, err := sys.PeerGroups(fd); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("PeerGroups: %v", err)
	}
	if _, err := sys.PeerPIDFD(fd); !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("PeerPIDFD: %v", err)
	}
}

func TestFutexWakesAWaiter(t *testing.T) {
	var word atomic.Uint32
	var wg sync.WaitGroup
	wg.Go(func() {
		for word.Load() == 0 {
			if err := sys.FutexWait(&word, 0, 0); err != nil &&
				!errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
				t.Errorf("wait: %v", err)
				return
			}
		}
	})
	// Wake only once the waiter sleeps: only then does the kernel count it. No time limit: the test's own is one.
	for woken := 0; woken == 0; {
		n, err := sys.FutexWake(&word, 1)
		if err != nil {
			t.Fatal(err)
		}
		woken = n
		runtime.Gosched()
	}
	word.Store(1)
	if _, err := sys.FutexWake(&word, 1); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func TestFutexWaitErrors(t *testing.T) {
	var word atomic.Uint32
	if err := sys.FutexWait(&word, 7, 0); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("another value: %v, want EAGAIN", err)
	}
	for {
		err := sys.FutexWait(&word, 0, time.Millisecond)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if !errors.Is(err, unix.ETIMEDOUT) || err.Error() != "futex wait: connection timed out" {
			t.Errorf("timeout: %v", err)
		}
		return
	}
}
