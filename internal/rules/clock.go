package rules

import (
	"go/ast"
	"slices"
)

// wallClock are the methods of time.Time that lose its monotonic reading, and what is left jumps when somebody sets the clock.
var wallClock = []string{"Unix", "UnixNano", "UnixMicro", "UnixMilli", "Round", "Truncate", "UTC", "Local", "In", "GobEncode", "MarshalBinary"}

// mayTellTime are the files that tell people, or other processes, what time it is; nothing is measured by that.
var mayTellTime = map[string]string{
	"broker/broker.go": "the epoch names a broker's incarnation",
	"broker/topic.go":  "the header says when a topic was made",
}

// checkClock keeps time.Now from being turned into wall-clock time where something could be measured by it: all bounds,
// ages and deadlines are differences of monotonic readings.
func checkClock(t *tree) []Finding {
	var found []Finding
	for _, s := range t.gos {
		name, ok := s.imported("time")
		if !ok || s.test || mayTellTime[s.path] != "" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(wallClock, sel.Sel.Name) {
				return true
			}
			if call, ok := sel.X.(*ast.CallExpr); ok && isNow(call, name) {
				found = append(found, s.at("clock", sel.Pos(), "time.Now().%s is wall-clock time, which jumps: keep the time.Time, and use Sub, Before and After", sel.Sel.Name))
			}
			return true
		})
	}
	return found
}

// isNow reports whether call is time.Now, or a method of what that returns.
func isNow(call *ast.CallExpr, pkg string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if x, ok := sel.X.(*ast.Ident); ok {
		return x.Name == pkg && sel.Sel.Name == "Now"
	}
	inner, ok := sel.X.(*ast.CallExpr)
	return ok && isNow(inner, pkg)
}
