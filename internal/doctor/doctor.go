// Package doctor looks at a machine the way hugebus will, and says of each thing that matters whether it is good, what
// was found, and what to type if it could be better. It changes nothing.
package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hugebus/hugebus/internal/sys"
)

// A Status says how good something is.
type Status string

// The statuses, the best first.
const (
	OK      Status = "ok"
	Warning Status = "warning" // hugebus works, but slower, or only up to a limit that is easily met
	Error   Status = "error"   // hugebus does not work like this
)

// worse reports whether s is worse than other.
func (s Status) worse(other Status) bool {
	rank := map[Status]int{OK: 0, Warning: 1, Error: 2}
	return rank[s] > rank[other]
}

// A Check is the result of one look.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Found says what is there, with values and units.
	Found string `json:"found"`
	// Do says what to type; empty where nothing is to be done.
	Do string `json:"do,omitempty"`
}

// A Report is the result of all looks. Its Status is the worst of them.
type Report struct {
	Status Status  `json:"status"`
	Checks []Check `json:"checks"`
}

// Examine looks at this machine, as this user, and at the broker behind socket. It takes no longer than ctx allows
// for the broker to answer.
func Examine(ctx context.Context, socket string) Report {
	return thisHost().examine(ctx, socket)
}

func (h host) examine(ctx context.Context, socket string) Report {
	r := Report{Status: OK}
	r.add(h.kernel())
	r.add(h.segments()...)
	r.add(h.hugePages()...)
	r.add(h.thp(), h.thpPrivate(), h.memlock(), h.membarrier())
	r.add(h.cpus(), h.isolation(), h.governor())
	r.add(h.cgroupMemory(), h.cgroupHuge(), h.cgroupCPU(), h.cgroupTasks(), h.openFiles())
	r.add(h.socket(socket), h.broker(ctx, socket))
	return r
}

func (r *Report) add(checks ...Check) {
	for _, c := range checks {
		if c.Status.worse(r.Status) {
			r.Status = c.Status
		}
		r.Checks = append(r.Checks, c)
	}
}

// host is where the looks go: files below root, and functions that tests replace.
type host struct {
	root string // "/", or a directory that stands for it

	sizes      func() ([]int64, error)
	pool       func(size int64) (sys.HugePool, error)
	thpWord    func() (string, error)
	shmemTHP   func() (string, error)
	lockLimit  func() (int64, error)
	barriers   func() (sys.Barriers, error)
	allowed    func() ([]int, error)
	memory     func() (sys.Room, error)
	hugeRoom   func(size int64) (sys.Room, bool)
	cpuLimit   func() (float64, string, bool)
	taskLimit  func() (int64, string, bool)
	trySegment func() (sealed, readOnly error)
}

func thisHost() host {
	return host{
		root:  "/",
		sizes: sys.HugePageSizes, pool: sys.HugePages, thpWord: sys.THP, shmemTHP: sys.ShmemTHP,
		lockLimit: sys.MemlockLimit, barriers: sys.MembarrierRegister, allowed: sys.AllowedCPUs,
		memory: sys.AvailableMemory, hugeRoom: sys.CgroupHuge, cpuLimit: sys.CgroupCPU, taskLimit: sys.CgroupTasks,
		trySegment: trySegment,
	}
}

// text returns what a file of /proc or /sys says, without the newline, or "" where it is not there.
func (h host) text(name string) string {
	b, err := os.ReadFile(filepath.Join(h.root, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// field returns the first word behind a label at the start of a line, or "".
func (h host) field(file, label string) string {
	for line := range strings.Lines(h.text(file)) {
		if rest, ok := strings.CutPrefix(line, label); ok {
			if words := strings.Fields(rest); len(words) > 0 {
				return words[0]
			}
		}
	}
	return ""
}

// mayLock reports whether this process has CAP_IPC_LOCK, which the limit of locked memory does not bind.
func (h host) mayLock() bool {
	const capIPCLock = 14 // of capabilities(7)
	caps, err := strconv.ParseUint(h.field("proc/self/status", "CapEff:"), 16, 64)
	return err == nil && caps>>capIPCLock&1 == 1
}

// good, warn and bad make checks.
func good(name, found string) Check { return Check{Name: name, Status: OK, Found: found} }
func warn(name, found, do string) Check {
	return Check{Name: name, Status: Warning, Found: found, Do: do}
}
func bad(name, found, do string) Check { return Check{Name: name, Status: Error, Found: found, Do: do} }
