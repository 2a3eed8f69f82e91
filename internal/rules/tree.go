package rules

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Finding is one breach of a rule.
type Finding struct {
	Rule string // name of the rule, as in the package's comment
	File string // path from the root, with slashes
	Line int    // from 1; 0 for the whole file
	Text string // what is wrong, and what to do
}

// String is "file:line: rule: text".
func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Text) }

// source is one Go file, whatever its build tags.
type source struct {
	path string // from the root, with slashes
	pkg  string // folder, from the root; "." for the root
	test bool
	fset *token.FileSet
	ast  *ast.File
	text []byte
}

// at is a finding in the file.
func (s *source) at(rule string, pos token.Pos, format string, args ...any) Finding {
	return Finding{Rule: rule, File: s.path, Line: s.fset.Position(pos).Line, Text: fmt.Sprintf(format, args...)}
}

// imported returns the local name of an import of the file, and whether it is there.
func (s *source) imported(path string) (string, bool) {
	for _, spec := range s.ast.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); p == path {
			if spec.Name != nil {
				return spec.Name.Name, true
			}
			return path[strings.LastIndexByte(path, '/')+1:], true
		}
	}
	return "", false
}

// text is one other file that people read.
type text struct {
	path string
	text []byte
}

// tree is what the rules look at.
type tree struct {
	module string
	gos    []*source
	texts  []text // all readable files, Go's included
}

// page returns the text of the file at path, and whether there is one.
func (t *tree) page(path string) ([]byte, bool) {
	i := slices.IndexFunc(t.texts, func(x text) bool { return x.path == path })
	if i < 0 {
		return nil, false
	}
	return t.texts[i].text, true
}

// skipped are folders that are not ours to judge: data for tests, which is bad on purpose, and what tools keep.
func skipped(name string) bool {
	return name == "testdata" || name == "vendor" || name == "node_modules" || len(name) > 1 && name[0] == '.' && name != ".ci" && name != ".github"
}

// load reads the tree below root.
func load(root fs.FS) (*tree, error) {
	mod, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	first, _, _ := strings.Cut(string(mod), "\n")
	t := &tree{module: strings.TrimSpace(strings.TrimPrefix(first, "module"))}
	err = fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if skipped(d.Name()) {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		return t.add(root, p)
	})
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return t, nil
}

func (t *tree) add(root fs.FS, p string) error {
	b, err := fs.ReadFile(root, p)
	if err != nil {
		return err
	}
	if bytes.IndexByte(b, 0) >= 0 || p == "go.sum" {
		return nil // not for reading
	}
	t.texts = append(t.texts, text{path: p, text: b})
	if !strings.HasSuffix(p, ".go") {
		return nil
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, p, b, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.gos = append(t.gos, &source{path: p, pkg: path.Dir(p), test: strings.HasSuffix(p, "_test.go"), fset: fset, ast: f, text: b})
	return nil
}

// A rule looks at the whole tree.
type rule func(*tree) []Finding

// Check applies all rules to the tree below root, which is a module's, and returns what it finds, in order of files.
func Check(root fs.FS) ([]Finding, error) {
	t, err := load(root)
	if err != nil {
		return nil, err
	}
	calls, err := systemCallNames()
	if err != nil {
		return nil, err
	}
	var all []Finding
	for _, r := range []rule{checkImports, checkUnsafe, calls.check, checkForeign, checkClock, checkSize, checkSync, checkDocs, checkText} {
		all = append(all, r(t)...)
	}
	slices.SortFunc(all, func(a, b Finding) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return all, nil
}
