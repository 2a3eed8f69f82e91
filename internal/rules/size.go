package rules

import (
	"bytes"
	"fmt"
	"go/ast"
	"strings"
)

// The hard limits, in lines. What is aimed at is less: files of 400, functions of 60.
const (
	mostFileLines     = 450
	mostTestFileLines = 700
	mostFuncLines     = 80
	mostTestFuncLines = 120 // a table is data
)

// checkSize keeps files and functions readable.
func checkSize(t *tree) []Finding {
	var found []Finding
	for _, s := range t.gos {
		lines, most, mostFunc := bytes.Count(s.text, []byte("\n")), mostFileLines, mostFuncLines
		if s.test {
			most, mostFunc = mostTestFileLines, mostTestFuncLines
		}
		if lines > most {
			found = append(found, Finding{Rule: "size", File: s.path, Text: fmt.Sprintf("%d lines, at most %d: does it hold one thing?", lines, most)})
		}
		for _, d := range s.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := s.fset.Position(fn.End()).Line - s.fset.Position(fn.Pos()).Line + 1; n > mostFunc {
				found = append(found, s.at("size", fn.Pos(), "%s has %d lines, at most %d: name its parts", funcName(fn), n, mostFunc))
			}
		}
	}
	return found
}

// funcName is T.F for a method and F for a function.
func funcName(fn *ast.FuncDecl) string {
	if r := receiver(fn); r != "" {
		return r + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// receiver is the name of a method's type, or "".
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	var b strings.Builder
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && b.Len() == 0 {
			b.WriteString(id.Name)
		}
		return true
	})
	return b.String()
}
