package keeper

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

// realEnv asks for the test with a systemd of its own. It needs root, systemd, util-linux, and a machine on which a
// stray cgroup does no harm.
const realEnv = "HUGEBUS_REAL_SYSTEMD"

// realRole is the hidden subcommand of this test binary that is a service of a real systemd: its argument is the
// folder for what it finds.
const realRole = "service-under-test"

// realUnit restarts a service that is killed one message later in every life, until it comes to its end.
const realUnit = `[Unit]
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
FileDescriptorStoreMax=200
Environment=FDSTORE=200
ExecStart=/bin/sh -c 'n=$$(cat {DIR}/life); echo $$((n+1)) >{DIR}/life; HUGEBUS_FAILPOINTS={POINT}=kill@$$n exec {PROGRAM} {ROLE} {DIR}'
Restart=always
RestartSec=1ms
StandardOutput=append:{DIR}/out
StandardError=append:{DIR}/out
`

// realSystemd runs a user's systemd in namespaces of its own: processes, mounts.
const realSystemd = `
mkdir -p /sys/fs/cgroup/systemd/hugebus-test && echo $$ >/sys/fs/cgroup/systemd/hugebus-test/cgroup.procs
exec timeout --kill-after 5 300 unshare --kill-child --mount --pid --fork --propagation private sh -c '
	mount -t tmpfs run /run && mount -t proc proc /proc && mkdir -p /run/systemd/system /run/x/systemd/user && chmod 700 /run/x
	export XDG_RUNTIME_DIR=/run/x HOME=/run/x
	cp "$0"/hugebus-test.service /run/x/systemd/user/
	echo "[Unit]" >/run/x/systemd/user/idle.target
	/lib/systemd/systemd --user --log-target=console --unit=idle.target >"$0"/log 2>&1 &
	until systemctl --user is-active idle.target; do kill -0 $! || exit 1; sleep 0.1; done
	systemctl --user start hugebus-test.service
	until [ -e "$0"/end ]; do kill -0 $! || exit 1; sleep 0.1; done
	systemctl --user show -p NFileDescriptorStore hugebus-test.service
	systemctl --user stop hugebus-test.service
	kill $!
' "$1"
`

func TestRealSystemd(t *testing.T) {
	if os.Getenv(realEnv) == "" {
		t.Skipf("%s=1 runs it, as root, with a systemd in namespaces of its own", realEnv)
	}
	program := testutil.BuildTagged(t, "github.com/hugebus/hugebus/internal/keeper", "failpoint")
	for _, point := range []string{FailBeforeNotify, FailAfterNotify} {
		t.Run(point, func(t *testing.T) {
			dir := t.TempDir()
			unit := strings.NewReplacer("{DIR}", dir, "{POINT}", point, "{PROGRAM}", program, "{ROLE}", realRole).Replace(realUnit)
			for name, text := range map[string]string{"hugebus-test.service": unit, "life": "1\n", "phase": "clean"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.Command("sh", "-c", realSystemd, "sh", dir).CombinedOutput()
			said, _ := os.ReadFile(filepath.Join(dir, "out"))
			end, _ := os.ReadFile(filepath.Join(dir, "end"))
			lives, _ := os.ReadFile(filepath.Join(dir, "life"))
			t.Logf("%s\n%s lives: %s", said, lives, out)
			// At its end the script leaves one entry, of a manifest alone.
			if err != nil || string(end) != "ok" || !strings.Contains(string(out), "NFileDescriptorStore=1\n") {
				log, _ := os.ReadFile(filepath.Join(dir, "log"))
				t.Errorf("%v; end: %q\n%s", err, end, log)
			}
		})
	}
}

// realService is one life of the service: it checks what the last one left, clears it away, and runs the script.
func realService(dir string) {
	fail := func(what string, err error) {
		if err != nil {
			_ = os.WriteFile(filepath.Join(dir, "end"), fmt.Appendf(nil, "%s: %v", what, err), 0o600)
			select {} // until the test ends it
		}
	}
	phase := func(text string) {
		path := filepath.Join(dir, "phase")
		fail("phase", os.WriteFile(path+".new", []byte(text), 0o600))
		fail("phase", os.Rename(path+".new", path))
	}
	last, err := os.ReadFile(filepath.Join(dir, "phase"))
	fail("phase", err)
	s, err := Open(context.Background(), Options{Socket: "/nonexistent/s"}, Inherit())
	fail("open", err)
	entries, err := s.Load(context.Background())
	fail("load", err)
	got := make(state)
	for _, e := range entries {
		texts := make([]string, len(e.Files))
		for i, f := range e.Files {
			b := make([]byte, 64)
			n, _ := f.ReadAt(b, 0)
			texts[i] = string(b[:n])
		}
		got[e.Key] = string(e.Data) + "|" + strings.Join(texts, ",")
		e.Close()
	}
	var steps int
	if n, _ := fmt.Sscanf(string(last), "script %d", &steps); n == 1 && !found(got, steps) {
		fail("state", fmt.Errorf("after %d steps: %v", steps, got))
	}
	fmt.Printf("%s: %d entries\n", last, len(got))
	fail("ready", Ready("adopted"))
	phase("clean")
	for key := range got {
		fail("delete", s.Delete(context.Background(), key))
	}
	phase("script 0")
	for i, step := range script() {
		var files []*os.File
		for _, text := range step.files {
			f, err := memFile(text)
			fail("file", err)
			files = append(files, f)
		}
		fail(step.kind, step.do(s, files))
		closeFiles(files)
		phase(fmt.Sprint("script ", i+1))
	}
	fail("end", os.WriteFile(filepath.Join(dir, "end"), []byte("ok"), 0o600))
	select {}
}
