package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// checkDocs finds packages without a comment, and exported names outside internal without one.
func checkDocs(t *tree) []Finding {
	var found []Finding
	undocumented := make(map[string]*source) // folder to its first file, as long as no file has a package comment
	documented := make(map[string]bool)
	for _, s := range t.gos {
		if s.test {
			continue
		}
		if s.ast.Doc != nil {
			documented[s.pkg] = true
		} else if undocumented[s.pkg] == nil {
			undocumented[s.pkg] = s
		}
		if !strings.HasPrefix(s.pkg, "internal/") && !strings.Contains(s.pkg, "/internal") && s.ast.Name.Name != "main" {
			found = append(found, exportedNames(s)...)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(undocumented)) {
		if !documented[pkg] {
			found = append(found, Finding{Rule: "docs", File: undocumented[pkg].path, Text: fmt.Sprintf("package %s has no comment in any file", pkg)})
		}
	}
	return found
}

// exportedNames finds exported names of the file that have no comment. One comment speaks for a group of constants or
// variables, or for the lines of a group up to an empty one. Fields are left to their authors: many say all by name.
func exportedNames(s *source) []Finding {
	var found []Finding
	missing := func(pos token.Pos, name string) {
		found = append(found, s.at("docs", pos, "%s has no doc comment", name))
	}
	for _, d := range s.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if r := receiver(d); d.Name.IsExported() && d.Doc == nil && (r == "" || ast.IsExported(r)) {
				missing(d.Pos(), funcName(d))
			}
		case *ast.GenDecl:
			explained, last := false, 0
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if !spec.Name.IsExported() {
						continue
					}
					if spec.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) && spec.Comment == nil {
						missing(spec.Pos(), spec.Name.Name)
					}
				case *ast.ValueSpec:
					if line := s.fset.Position(start(spec)).Line; line > last+1 {
						explained = d.Doc != nil
					}
					last = s.fset.Position(spec.End()).Line
					explained = explained || spec.Doc != nil || spec.Comment != nil
					for _, name := range spec.Names {
						if name.IsExported() && !explained {
							missing(name.Pos(), name.Name)
						}
					}
				}
			}
		}
	}
	return found
}

// start is where a specification begins, with its comment.
func start(spec *ast.ValueSpec) token.Pos {
	if spec.Doc != nil {
		return spec.Doc.Pos()
	}
	return spec.Pos()
}
