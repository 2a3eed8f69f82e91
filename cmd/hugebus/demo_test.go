package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hugebus/hugebus/internal/demo"
	"github.com/hugebus/hugebus/internal/doctor"
	"github.com/hugebus/hugebus/internal/testutil"
)

func init() {
	scenarios["Demo"] = demoWorks
	scenarios["DemoThatFails"] = demoFails
	scenarios["DemoThatIsInterrupted"] = demoInterrupted
	scenarios["DemoWhoseWorkerIsKilled"] = demoKilled
	scenarios["DemoThatKeepsGoing"] = demoKeepsGoing
	scenarios["Doctor"] = doctorLooks
	scenarios["AsAnOrdinaryUser"] = asAnOrdinaryUser
}

// nothingLeft checks that no process of the demo runs, and that no file of it is left.
func (w *world) nothingLeft() {
	w.Helper()
	left, err := filepath.Glob(filepath.Join(w.dir, "hugebus-demo-*"))
	if err != nil || len(left) > 0 {
		w.Errorf("left: %q, %v", left, err)
	}
	for _, pid := range w.readers() {
		w.Errorf("process %s is left", pid)
	}
}

// readers are the pids of this binary's demo processes. No other scenario runs at the same time.
func (w *world) readers() (pids []string) {
	w.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		w.Fatal(err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(string(text), w.binary+"\x00"+childCommand+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

func demoWorks(w *world) {
	var r demo.Result
	w.decode(&r, "demo", "--frames", "30000", "--json")
	if !r.OK || r.Frames != 30000 || r.Group.Once != 30000 || r.Broadcast.Once != 30000 || r.Lost+r.Duplicated+r.Corrupted != 0 {
		w.Errorf("%+v", r)
	}
	if r.FullSpeed.Frames != 24000 || r.FullSpeed.FramesPerSecond <= 0 || r.Paced.Frames != 3000 || r.Paced.P50 <= 0 || r.Paced.Max < r.Paced.P999 {
		w.Errorf("%+v %+v", r.FullSpeed, r.Paced)
	}
	if r.Syscalls.Counted == "" || r.Syscalls.Frames > 3000 {
		w.Errorf("%+v", r.Syscalls)
	}
	w.nothingLeft()
	page := w.ok("demo", "--frames", "2000", "--capacity", "64KiB", "--pages", "4KiB")
	for _, want := range []string{"frames/s", "MB/s", "latency p99.9", "system calls per frame in a worker", "lost", "duplicated", "corrupted",
		"64KiB of shared memory on 4KiB pages", "every frame arrived exactly where it should"} {
		if !strings.Contains(page, want) {
			w.Errorf("the table does not say %q:\n%s", want, page)
		}
	}
	w.nothingLeft()
}

func demoFails(w *world) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	w.mistakes([]mistake{
		{"demo --listen " + address, 1, []string{"demo: ", address, "in use"}},
		{"demo --capacity 1TiB", 1, []string{"needs 1TiB", "available"}},
	})
	w.nothingLeft()
	// No place for the socket.
	cmd := w.command("demo")
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(w.dir, "none"))
	p := w.start(cmd)
	if code := p.wait(); code != 1 || !strings.Contains(p.err.String(), "TMPDIR") {
		w.Errorf("status %d, %s", code, p.err)
	}
}

func (w *world) kill(pid int) {
	w.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		w.Fatal(err)
	}
}

// running starts a demo that lasts, and returns the pids of its readers: two workers and the subscriber.
func (w *world) running(args ...string) (p *process, pids [3]int) {
	w.Helper()
	cmd := w.command(append([]string{"demo", "--frames", "200000"}, args...)...)
	p = w.start(cmd)
	testutil.Eventually(w, "the demo has its readers", func() bool {
		found := w.readers()
		n := 0
		for _, pid := range found {
			text, err := os.ReadFile("/proc/" + pid + "/cmdline")
			for i, name := range []string{`"worker 1"`, `"worker 2"`, `"subscriber"`} {
				if err == nil && strings.Contains(string(text), name) {
					_, err = fmt.Sscan(pid, &pids[i])
					n++
				}
			}
		}
		return n == 3
	})
	return p, pids
}

func demoInterrupted(w *world) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p, _ := w.running()
		if err := p.cmd.Process.Signal(sig); err != nil {
			w.Fatal(err)
		}
		if code := p.wait(); code != 1 || !strings.Contains(p.err.String(), "demo: interrupted") {
			w.Errorf("%v: status %d, %s", sig, code, p.err)
		}
		w.nothingLeft()
	}
}

func demoKilled(w *world) {
	for i, name := range []string{"worker 1", "worker 2", "subscriber"} {
		p, pids := w.running()
		w.kill(pids[i])
		if code := p.wait(); code != 1 || !strings.Contains(p.err.String(), name+" (pid ") || !strings.Contains(p.err.String(), "ended in the middle") {
			w.Errorf("%s: status %d, %s", name, code, p.err)
		}
		w.nothingLeft()
	}
}

// demoKeepsGoing: with a worker killed, nothing is lost; at most what it was at is delivered twice, and marked.
func demoKeepsGoing(w *world) {
	cmd := w.command("demo", "--frames", "300000", "--keep-going", "--json")
	var out output
	cmd.Stdout = &out
	p := w.start(cmd)
	var victim int
	testutil.Eventually(w, "the demo tells its workers", func() bool {
		_, rest, ok := strings.Cut(p.err.String(), "workers: pids ")
		_, err := fmt.Sscan(rest, &victim)
		return ok && err == nil && strings.Contains(rest, "\n")
	})
	w.kill(victim)
	code := p.wait()
	var r demo.Result
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		w.Fatalf("status %d, %q, %s", code, out.String(), p.err)
	}
	if r.Lost != 0 || r.Corrupted != 0 || r.Group.Duplicated > r.Group.Redelivered || r.Broadcast.Once != 300000 || len(r.Died) != 1 {
		w.Errorf("%+v", r)
	}
	if (code == 0) != r.OK {
		w.Errorf("status %d, and ok is %v", code, r.OK)
	}
	w.nothingLeft()
}

func doctorLooks(w *world) {
	var r doctor.Report
	w.decode(&r, "doctor", "--json")
	if r.Status == doctor.Error || len(r.Checks) < 19 {
		w.Errorf("%+v", r)
	}
	page := w.ok("doctor")
	for _, want := range []string{"huge pages", "membarrier", "open files", "socket: " + w.socket, "warning  broker: no broker at",
		"-> hugebus broker --socket " + w.socket, " 0 errors\n"} {
		if !strings.Contains(page, want) {
			w.Errorf("the doctor does not say %q:\n%s", want, page)
		}
	}
	b := w.broker()
	if page := w.ok("doctor"); !strings.Contains(page, "OK       broker: hugebus") || !strings.Contains(page, fmt.Sprint("pid ", b.cmd.Process.Pid)) {
		w.Errorf("with a broker:\n%s", page)
	}
	// An error gives the exit status 1, with the page printed as always.
	bad := w.run("", "doctor", "--socket", filepath.Join(w.dir, "none", "h.sock"))
	if bad.code != 1 || !strings.Contains(bad.out, "ERROR    socket: ") || !strings.Contains(bad.out, "mkdir -p ") || bad.err != "" {
		w.Errorf("%+v", bad)
	}
}

// asAnOrdinaryUser runs the main things as somebody without rights, if the tests run as root; otherwise all other
// scenarios have done that.
func asAnOrdinaryUser(w *world) {
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	w.user = &syscall.Credential{Uid: nobody, Gid: nobody}
	if err := os.Chown(w.dir, nobody, nobody); err != nil {
		w.Fatal(err)
	}
	// The binary stands where only root may look.
	copied := filepath.Join(w.dir, "hugebus")
	text, err := os.ReadFile(w.binary)
	if err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(copied, text, 0o755); err != nil {
		w.Fatal(err)
	}
	w.binary = copied
	var r demo.Result
	w.decode(&r, "demo", "--frames", "5000", "--json")
	if !r.OK {
		w.Errorf("%+v", r)
	}
	w.nothingLeft()
	w.ok("doctor")
	w.broker()
	w.ok("topic", "create", "t", "--capacity", "64KiB")
	if r := w.run("a\n", "pub", "t"); r.code != 0 {
		w.Errorf("%+v", r)
	}
	if got := w.ok("sub", "t", "--from", "earliest", "--count", "1"); got != "a\n" {
		w.Errorf("%q", got)
	}
	// And yet another user, whom no rule admits, is told so.
	w.user = &syscall.Credential{Uid: nobody - 1, Gid: nobody - 1}
	if err := os.Chmod(w.dir, 0o755); err != nil {
		w.Fatal(err)
	}
	if r := w.run("", "sub", "t"); r.code != 1 || !strings.Contains(r.err, `rule "owner-only"`) || !strings.Contains(r.err, "uid 65533") {
		w.Errorf("a stranger: %+v", r)
	}
}
