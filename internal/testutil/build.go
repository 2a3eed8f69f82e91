package testutil

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// BuildTagged builds a package with build tags (comma-separated), into a folder that goes when the test ends, and returns
// the program's path: a package main as a command, any other as its test binary. With it, plain go test runs
// children that have failpoints or invariants.
func BuildTagged(t testing.TB, pkg, tags string) string {
	t.Helper()
	name := strings.TrimSpace(goTool(t, "list", "-f", "{{.Name}}", "-tags", tags, pkg))
	program := filepath.Join(t.TempDir(), filepath.Base(pkg))
	if name == "main" {
		goTool(t, "build", "-ldflags", quick, "-tags", tags, "-o", program, pkg)
	} else {
		goTool(t, "test", "-c", "-vet=off", "-ldflags", quick, "-tags", tags, "-o", program, pkg)
	}
	return program
}

// quick leaves out what only debuggers need, which takes half of a link's time.
const quick = "-s -w"

// goTool runs the go command and returns its standard output.
func goTool(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("testutil: go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}
