// Package foreign runs the workloads of bench over libraries for C: ZeroMQ and iceoryx.
// This program has no cgo, so it carries the source of a small helper for each, compiles
// it at run time where a compiler and the library's headers are there, and runs it in
// processes of its own, as it runs itself for other systems.
package foreign

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Systems that this package carries.
const (
	ZeroMQ  = "zeromq"
	Iceoryx = "iceoryx"
)

//go:embed csrc
var sources embed.FS

// A library is what a helper needs.
type library struct {
	debian  string   // the packages that have it
	header  string   // a file that is there if it is
	flags   []string // of the compiler
	sources []string
}

var libraries = map[string]library{
	ZeroMQ: {
		debian: "gcc libzmq3-dev", header: "zmq.h", flags: []string{"-lzmq"},
		sources: []string{"workload.c", "zeromq.c", "carrier.h"},
	},
	Iceoryx: {
		debian: "gcc iceoryx libiceoryx-binding-c-dev libiceoryx-posh-dev libiceoryx-hoofs-dev", header: "iceoryx_binding_c/publisher.h",
		flags: []string{"-liceoryx_binding_c"}, sources: []string{"workload.c", "iceoryx.c", "carrier.h"},
	},
}

// includes are folders where Debian puts headers that a compiler does not look in by itself.
var includes = []string{"/usr/include/iceoryx/v2*"}

// Build compiles a system's helper into dir and returns its path. The error says what is
// missing and which Debian packages have it.
func Build(ctx context.Context, system, dir string) (string, error) {
	lib, ok := libraries[system]
	if !ok {
		return "", fmt.Errorf("foreign: unknown system %q", system)
	}
	var files []string
	for _, name := range lib.sources {
		text, err := sources.ReadFile("csrc/" + name)
		if err != nil {
			return "", fmt.Errorf("foreign: %w", err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", fmt.Errorf("foreign: %w", err)
		}
		if filepath.Ext(name) == ".c" {
			files = append(files, path)
		}
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return "", fmt.Errorf("no C compiler: apt-get install %s", lib.debian)
	}
	program := filepath.Join(dir, system)
	args := []string{"-O2", "-o", program}
	for _, pattern := range includes {
		found, _ := filepath.Glob(pattern) // the pattern is well-formed
		for _, folder := range found {
			args = append(args, "-I", folder)
		}
	}
	args = append(append(args, files...), lib.flags...)
	if out, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
		if exec.CommandContext(ctx, compiler, append(probe(args[3:len(args)-len(files)-len(lib.flags)]), "-include", lib.header)...).Run() != nil {
			return "", fmt.Errorf("%s is not there: apt-get install %s", lib.header, lib.debian)
		}
		return "", fmt.Errorf("foreign: compile for %s: %w\n%s", system, err, out)
	}
	return program, nil
}

// probe are arguments that compile nothing, to see whether a header is found.
func probe(flags []string) []string {
	return append([]string{"-fsyntax-only", "-x", "c", os.DevNull}, flags...)
}
