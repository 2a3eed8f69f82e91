package rules

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// checkUnsafe keeps package unsafe in files whose name says so.
func checkUnsafe(t *tree) []Finding {
	var found []Finding
	for _, s := range t.gos {
		if strings.HasSuffix(s.path, "_unsafe.go") || strings.HasSuffix(s.path, "_unsafe_test.go") {
			continue
		}
		for _, spec := range s.ast.Imports {
			if spec.Path.Value == `"unsafe"` {
				found = append(found, s.at("unsafe", spec.Pos(), "unsafe is for files named *_unsafe.go: move what needs it there"))
			}
		}
	}
	return found
}

// checkForeign refuses cgo and go:linkname.
func checkForeign(t *tree) []Finding {
	var found []Finding
	for _, s := range t.gos {
		for _, spec := range s.ast.Imports {
			if p, _ := strconv.Unquote(spec.Path.Value); p == "C" {
				found = append(found, s.at("foreign", spec.Pos(), "no cgo: use x/sys/unix or assembler"))
			}
		}
		for _, group := range s.ast.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//go:"+"linkname") {
					found = append(found, s.at("foreign", c.Pos(), "no go:linkname: it breaks with the next Go"))
				}
			}
		}
	}
	return found
}

// mayCall are the packages that call the kernel.
var mayCall = []string{"internal/sys", "shm"}

// harmless are functions of the packages below that are no system calls: names, and arithmetic.
var harmless = []string{"ErrnoName", "SignalName", "SignalNum", "ByteSliceToString", "Getpagesize", "TimespecToNsec", "NsecToTimespec"}

// callNames are the names of functions, by the package that has them.
type callNames map[string]map[string]bool

// systemCallNames are the names of all functions of the packages that wrap system calls, so that their constants, types and
// errors are told apart from them.
var systemCallNames = sync.OnceValues(readSystemCallNames)

func readSystemCallNames() (callNames, error) {
	names := make(callNames)
	for _, path := range []string{"syscall", "golang.org/x/sys/unix"} {
		pkg, err := build.Default.Import(path, ".", 0)
		if err != nil {
			return nil, fmt.Errorf("rules: %w", err)
		}
		names[path] = make(map[string]bool)
		for _, file := range append(pkg.GoFiles, pkg.CgoFiles...) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(pkg.Dir, file), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, fmt.Errorf("rules: %w", err)
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && !slices.Contains(harmless, fn.Name.Name) {
					names[path][fn.Name.Name] = true
				}
			}
		}
	}
	return names, nil
}

// check keeps system calls in the packages that may make them. A function that is only mentioned counts as well. Tests are
// free: they play peers, other users and broken kernels.
func (c callNames) check(t *tree) []Finding {
	var found []Finding
	for _, s := range t.gos {
		if s.test || slices.Contains(mayCall, s.pkg) {
			continue
		}
		for path, functions := range c {
			name, ok := s.imported(path)
			if !ok {
				continue
			}
			ast.Inspect(s.ast, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && functions[sel.Sel.Name] {
						found = append(found, s.at("system-calls", sel.Pos(), "%s.%s: only %s call the kernel; give internal/sys a function for it",
							name, sel.Sel.Name, strings.Join(mayCall, " and ")))
					}
				}
				return true
			})
		}
	}
	return found
}
