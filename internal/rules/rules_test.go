package rules

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "example.org/bus"

// What the text rule forbids is put together here, since it looks at this file too.
const (
	home     = "/ho" + "me/jo/"
	user     = "/Us" + "ers/jo/"
	roots    = "/ro" + "ot/g"
	host     = "git.inter" + "nal"
	corp     = "db.prod.co" + "rp"
	registry = "artifac" + "tory.example."
)

// sample makes a tree of the files, each a path and its text.
func sample(files ...string) fs.FS {
	m := fstest.MapFS{"go.mod": {Data: []byte("module " + module + "\n\ngo 1.26\n")}}
	for i := 0; i < len(files); i += 2 {
		m[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return m
}

// findings checks a sample, and returns what was found as text, one finding a line.
func findings(t *testing.T, files ...string) string {
	t.Helper()
	found, err := Check(sample(files...))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// lines is a Go file with a package comment and this body, which begins in line 3.
func lines(pkg, body string) string {
	return "// Package " + pkg + " is.\npackage " + pkg + "\n" + body
}

func TestGoodTree(t *testing.T) {
	got := findings(t,
		"ring/ring.go", lines("ring", `
import (
	"errors"
	"os"

	"example.org/bus/internal/arch"
	"example.org/bus/seqlock"
)

// Size is in bytes.
const Size = 64

// Errors.
var (
	ErrClosed = os.ErrClosed
	ErrFull   = errors.New("full")
)

const (
	// A and B come first.
	A = 1
	B = 2

	C = 3 // and then this
)

// SYNC(commit): release.
func f() { arch.F(); seqlock.F() }

// T is a type.
type T struct{ Field int }

// M is a method.
func (t *T) M() {}

type hidden struct{}

func (hidden) Exported() {}
`),
		"ring/mem_unsafe.go", "package ring\n\nimport \"unsafe\"\n\nvar _ unsafe.Pointer // SYNC(commit):\n// acquire\n",
		"ring/ring_test.go", "package ring\n\nimport (\n\t\"net\"\n\t\"syscall\"\n)\n\nvar _ = net.Dial\nvar _ = syscall.Kill\n",
		"ring/x_unsafe_test.go", "package ring\n\nimport _ \"unsafe\"\n",
		"internal/arch/arch.go", lines("arch", "func F() {}\n"),
		"internal/sys/sys.go", lines("sys", "import \"golang.org/x/sys/unix\"\n\nvar K = unix.Kill\n"),
		"internal/gateway/g.go", lines("gateway", "import \"golang.org/x/sys/unix\"\n\nvar S = unix.SIGTERM\nvar E error = unix.EAGAIN\nvar N = unix.ErrnoName\n"),
		"seqlock/s.go", lines("seqlock", "// F does.\nfunc F() {}\n"),
		"bench/internal/a/a.go", lines("a", "func Undocumented() {}\n"),
		"bench/main.go", "// Command bench measures.\npackage main\n\nimport _ \"example.org/bus/bench/internal/a\"\n\nfunc Undocumented() {}\n",
		"testdata/bad.go", "this is no Go",
		"README.md", "See /home and https://example.org; ~/x is fine, and so is pkg/root/x.\n",
	)
	if got != "" {
		t.Errorf("found in a good tree:\n%s", got)
	}
}

func TestBadSamples(t *testing.T) {
	for _, c := range badSamples() {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Split(strings.TrimSuffix(findings(t, c.files...), "\n"), "\n")
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("found\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

// badSample is a tree, and how each finding in it begins, in order.
type badSample struct {
	name  string
	files []string
	want  []string
}

func badSamples() []badSample {
	return slices.Concat(badImports(), badCode(), badSizes(), badWords())
}

func badImports() []badSample {
	return []badSample{
		{"import up", []string{"ring/r.go", lines("ring", `import _ "example.org/bus/client"`)},
			[]string{"ring/r.go:3: imports: ring imports example.org/bus/client: it is not below: imports point down only"}},
		{"import sideways", []string{"client/c.go", lines("client", `import _ "example.org/bus/broker"`)},
			[]string{"client/c.go:3: imports: client imports example.org/bus/broker: it is not below"}},
		{"broker imports client", []string{"broker/b.go", lines("broker", `import _ "example.org/bus/client"`)},
			[]string{"broker/b.go:3: imports: broker imports example.org/bus/client: it is not below"}},
		{"commands share nothing across", []string{"bench/b.go", lines("bench", `import _ "example.org/bus/cmd/hugebus"`)},
			[]string{"bench/b.go:3: imports: bench imports example.org/bus/cmd/hugebus: it is not below"}},
		{"no layer", []string{"extra/e.go", lines("extra", ""), "extra/f.go", "package extra\n", "client/c.go", lines("client", `import _ "example.org/bus/extra"`)},
			[]string{"client/c.go:3: imports: client imports example.org/bus/extra: it has no layer", "extra/e.go:0: imports: package extra has no layer"}},
		{"test package in production", []string{"client/c.go", lines("client", `import _ "example.org/bus/internal/testutil"`)},
			[]string{"client/c.go:3: imports: client imports example.org/bus/internal/testutil: it is for tests only"}},
		{"ring dials", []string{"ring/r.go", lines("ring", `import _ "net"`)},
			[]string{"ring/r.go:3: imports: ring imports net: a package that only takes memory does not touch the world"}},
		{"seqlock serves", []string{"seqlock/s.go", lines("seqlock", `import _ "net/http"`)},
			[]string{"seqlock/s.go:3: imports: seqlock imports net/http: a package that only takes memory"}},
		{"ring opens", []string{"ring/r.go", lines("ring", "import \"os\"\n\nvar _ = os.Open\n")},
			[]string{"ring/r.go:5: imports: ring uses os.Open"}},
		{"ring opens by another name", []string{"ring/r.go", lines("ring", "import host \"os\"\n\nvar _ = host.Getpid\n")},
			[]string{"ring/r.go:5: imports: ring uses os.Getpid"}},
		{"ring maps", []string{"ring/r.go", lines("ring", `import _ "github.com/edsrzf/mmap-go"`)},
			[]string{"ring/r.go:3: imports: ring imports github.com/edsrzf/mmap-go: the data path does not use it"}},
		{"ring maps through shm", []string{"ring/r.go", lines("ring", `import _ "example.org/bus/shm"`)},
			[]string{"ring/r.go:3: imports: ring imports example.org/bus/shm: it is not below"}},
		{"the bus on a rival", []string{"client/c.go", lines("client", `import _ "github.com/nats-io/nats.go"`)},
			[]string{"client/c.go:3: imports: client imports github.com/nats-io/nats.go: it is there to be measured: only bench imports it"}},
		{"foreign on the data path", []string{"shm/s.go", lines("shm", `import _ "github.com/dustin/go-humanize"`)},
			[]string{"shm/s.go:3: imports: shm imports github.com/dustin/go-humanize: the data path does not use it"}},
	}
}

func badCode() []badSample {
	return []badSample{
		{"unsafe", []string{"shm/s.go", lines("shm", `import _ "unsafe"`), "shm/s_test.go", "package shm\n\nimport _ \"unsafe\"\n"},
			[]string{"shm/s.go:3: unsafe: unsafe is for files named *_unsafe.go", "shm/s_test.go:3: unsafe: "}},
		{"system call", []string{"client/c.go", lines("client", "import \"golang.org/x/sys/unix\"\n\nfunc f() { unix.Close(1) }\n")},
			[]string{"client/c.go:5: system-calls: unix.Close: only internal/sys and shm call the kernel"}},
		{"system call by another name", []string{"broker/b.go", lines("broker", "import s \"syscall\"\n\nvar kill = s.Kill\n")},
			[]string{"broker/b.go:5: system-calls: s.Kill: only internal/sys and shm"}},
		{"cgo", []string{"shm/s.go", lines("shm", `import "C"`)},
			[]string{"shm/s.go:3: imports: shm imports C", "shm/s.go:3: foreign: no cgo"}},
		{"wall clock", []string{"client/c.go", lines("client", "import \"time\"\n\nvar n = time.Now().UnixNano()\n\nvar t = time.Now().Add(1).Round(0)\n\nvar d = time.Since(time.Time{}).Round(1)\n")},
			[]string{"client/c.go:5: clock: time.Now().UnixNano is wall-clock time", "client/c.go:7: clock: time.Now().Round"}},
		{"linkname", []string{"ring/r_unsafe.go", lines("ring", "import _ \"unsafe\"\n\n//go:linkname f runtime.f\nfunc f()\n")},
			[]string{"ring/r_unsafe.go:5: foreign: no go:linkname"}},
	}
}

func badSizes() []badSample {
	long := strings.Repeat("\n", 500)
	return []badSample{
		{"long file", []string{"ring/r.go", lines("ring", long), "ring/r_test.go", "package ring\n" + long},
			[]string{"ring/r.go:0: size: 502 lines, at most 450"}},
		{"long test file", []string{"ring/r_test.go", "package ring\n" + long + long},
			[]string{"ring/r_test.go:0: size: 1001 lines, at most 700"}},
		{"long function", []string{"ring/r.go", lines("ring", "func f() {\n"+long[:78]+"}\n\nfunc g() {\n"+long[:79]+"}\n\nfunc (r *ring) h() {\n"+long[:90]+"}\n")},
			[]string{"ring/r.go:84: size: g has 81 lines, at most 80", "ring/r.go:166: size: ring.h has 92 lines"}},
		{"long test function", []string{"ring/r_test.go", "package ring\n\nfunc f() {\n" + long[:119] + "}\n"},
			[]string{"ring/r_test.go:3: size: f has 121 lines, at most 120"}},
	}
}

func badWords() []badSample {
	return []badSample{
		{"half a pair", []string{"ring/r.go", lines("ring", "\n// SYNC(one): release.\n// SYNC(two): acquire\n// SYNC(three)\n// SYNC(four): release\n"),
			"seqlock/s.go", lines("seqlock", "// SYNC(four): acquire\n"), "ring/r_test.go", "package ring\n// SYNC(one): acquire\n"},
			[]string{"ring/r.go:4: sync: the pair one has no end marked SYNC(one): acquire", "ring/r.go:5: sync: the pair two has no end marked SYNC(two): release",
				"ring/r.go:6: sync: the pair three has no end marked SYNC(three): release", "ring/r.go:6: sync: the pair three has no end marked SYNC(three): acquire"}},
		{"a pair that nobody argued for", []string{"docs/memory-model.md", "SYNC(one), SYNC(fourteen)\n",
			"ring/r.go", lines("ring", "\n// SYNC(one): release\n// SYNC(one): acquire\n// SYNC(four): release\n// SYNC(four): acquire\n")},
			[]string{"ring/r.go:6: sync: the pair four is not in docs/memory-model.md"}},
		{"no package comment", []string{"internal/sys/a.go", "package sys\n", "internal/sys/b.go", "package sys\n"},
			[]string{"internal/sys/a.go:0: docs: package internal/sys has no comment"}},
		{"no doc comments", []string{"ring/r.go", lines("ring", "func F() {}\n\ntype T int\n\nfunc (T) M() {}\n\nconst A = 1\n\nvar (\n\t// B is\n\tB int\n\n\tC int\n)\n\n// Group.\ntype (\n\tD int\n)\n")},
			[]string{"ring/r.go:3: docs: F has no doc comment", "ring/r.go:5: docs: T has", "ring/r.go:7: docs: T.M has", "ring/r.go:9: docs: A has", "ring/r.go:15: docs: C has", "ring/r.go:20: docs: D has"}},
		{"left open", []string{"README.md", "fine\n\nTO" + "DO: more\n", "run.sh", "# FIX" + "ME\n", "ring/r.go", lines("ring", "// XX"+"X\n")},
			[]string{"README.md:3: text: TO" + "DO: do it, or file an issue", "ring/r.go:3: text: XX" + "X", "run.sh:1: text: FIX" + "ME"}},
		{"a person's folder", []string{"a.md", "cd " + home + "src/x\n", "b.sh", "PATH=" + roots + "o/bin\n", "c.md", "\"" + user + "x\"\n"},
			[]string{"a.md:1: text: " + home + ": a person's folder", "b.sh:1: text: =" + roots + ": a person's folder", "c.md:1: text: \"" + user + ": a person's folder"}},
		{"a private host", []string{"a.md", "https://" + host + "/x\n", "b.yaml", "host: " + corp + "\n", "c.md", "https://" + registry + "org/go\n"},
			[]string{"a.md:1: text: ://" + host + ": a private host", "b.yaml:1: text: " + corp + ": a private host", "c.md:1: text: " + registry + ": a private registry"}},
	}
}

func TestTreesThatCannotBeRead(t *testing.T) {
	for want, tree := range map[string]fs.FS{
		"go.mod":             fstest.MapFS{},
		"expected 'package'": sample("ring/r.go", "this is no Go"),
	} {
		if _, err := Check(tree); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q in it", err, want)
		}
	}
}

// TestSystemCallNamesAreThere guards the guard: with an empty list nothing would be found.
func TestSystemCallNamesAreThere(t *testing.T) {
	names, err := systemCallNames()
	if err != nil {
		t.Fatal(err)
	}
	for path, functions := range map[string][]string{"syscall": {"Kill", "Mmap", "Syscall"}, "golang.org/x/sys/unix": {"MemfdCreate", "Mmap", "Syscall6"}} {
		for _, f := range functions {
			if !names[path][f] {
				t.Errorf("%s.%s is not known", path, f)
			}
		}
		if names[path]["EAGAIN"] || names[path]["Signal"] {
			t.Errorf("%s: constants or types are taken for functions", path)
		}
	}
}
