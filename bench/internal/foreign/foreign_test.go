package foreign

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestMissingCompilerNamesThePackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Build(t.Context(), ZeroMQ, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "apt-get install gcc libzmq3-dev") {
		t.Error(err)
	}
}

func TestMissingHeaderNamesThePackages(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	saved := libraries[ZeroMQ]
	defer func() { libraries[ZeroMQ] = saved }()
	absent := saved
	absent.header, absent.sources, absent.debian = "no_such_header.h", []string{"carrier.h"}, "some-package"
	libraries[ZeroMQ] = absent
	_, err := Build(t.Context(), ZeroMQ, t.TempDir())
	if err == nil || err.Error() != "no_such_header.h is not there: apt-get install some-package" {
		t.Error(err)
	}
}

// loopback is a carrier that is its own other side: it gives what was sent last.
const loopback = `
#include "carrier.h"
#include <string.h>
static unsigned char last[1 << 16];
static size_t n;
void carrier_open(const char *name, int front, size_t size) { (void)name; (void)front; n = size; }
void carrier_send(const void *p, size_t size) {
	memcpy(last, p, n = size);
	if (CHANGE && n > 20) last[20] ^= 1;
}
size_t carrier_receive(const void **p) { *p = last; return n; }
void carrier_release(void) {}
void carrier_close(void) {}
`

// build compiles the workload with the loopback carrier.
func build(t *testing.T, change string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	for _, name := range []string{"workload.c", "carrier.h"} {
		text, err := sources.ReadFile("csrc/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "loopback.c"), []byte(loopback), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(compiler, "-Wall", "-Wextra", "-Werror", "-DCHANGE="+change, "-o", "helper", "workload.c", "loopback.c")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "helper")
}

func TestHelperTimesTripsAndReportsThem(t *testing.T) {
	cmd := exec.Command(build(t, "0"), "ping", "x", "48", "1500", "0", "10")
	cmd.Stdin = strings.NewReader("g")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := bytes.CutPrefix(out, []byte("ready\n"))
	if !ok {
		t.Fatalf("said %.20q", out)
	}
	result, err := readTimes(bytes.NewReader(rest))
	if err != nil {
		t.Fatal(err)
	}
	if n := result.(*report.Histogram).Count(); n != 1500 {
		t.Errorf("%d times, want 1500", n)
	}
}

func TestHelperFindsAPayloadThatArrivedChanged(t *testing.T) {
	cmd := exec.Command(build(t, "1"), "ping", "x", "48", "10", "0", "0")
	cmd.Stdin = strings.NewReader("g")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a payload arrived changed") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestResultsThatAreCutAreErrors(t *testing.T) {
	short := binary.LittleEndian.AppendUint64(nil, 3)
	if _, err := readTimes(bytes.NewReader(short)); err == nil {
		t.Error("3 times and none there: no error")
	}
	if _, err := readRate(bytes.NewReader(short)); err == nil {
		t.Error("half a rate: no error")
	}
}
