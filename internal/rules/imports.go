package rules

import (
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// layers are the packages from the bottom up: a package imports only packages of the layers below its own. A folder
// ends in /... when everything below it is in the layer too, and may import each other.
var layers = [][]string{
	{"internal/arch", "internal/failpoint", "internal/invariants", "internal/testutil", "internal/rules", "internal/gateway/codec", "internal/metrics"},
	{"seqlock", "internal/sys"},
	{"ring", "shm", "internal/doorbell"},
	{"internal/control", "internal/gateway/...", "internal/pump"},
	{"internal/keeper"},
	{"internal/keeper/keepertest"},
	{"client", "broker"}, // which do not import each other: side by side
	{"internal/bustest"},
	{"client/ingress", "client/egress", "client/resp"},
	{"internal/chaos/...", "internal/demo/...", "internal/doctor/..."},
	{"cmd/...", "bench/...", "examples/..."},
}

// dataPath are the packages that frames pass through, which import only the standard library, the foreign packages
// named here, and what lies below them.
var dataPath = map[string][]string{
	"internal/arch":     nil,
	"internal/sys":      {"golang.org/x/sys/unix"},
	"internal/doorbell": {"golang.org/x/sys/unix"},
	"seqlock":           nil,
	"ring":              nil,
	"shm":               {"golang.org/x/sys/unix", "github.com/edsrzf/mmap-go"},
}

// rivals are modules that only bench uses, to measure and to draw: nobody who imports the bus builds them.
var rivals = []string{"github.com/nats-io/", "github.com/redis/", "gonum.org/", "codeberg.org/go-fonts/"}

// pure are the packages that take memory and do nothing with the world: they map nothing and dial nothing.
var pure = []string{"ring", "seqlock", "internal/arch"}

// worldly are the standard packages, and what lies below them, that pure packages do not import. (os is one that they
// import for its errors: see checkPure.)
var worldly = []string{"net", "syscall", "os/exec", "os/signal", "io/ioutil", "database", "plugin"}

// testOnly are the packages that only tests import, and each other.
var testOnly = map[string]bool{"internal/testutil": true, "internal/rules": true, "internal/keeper/keepertest": true, "internal/bustest": true}

func layerOf(pkg string) (layer int, family string, ok bool) {
	for i, names := range layers {
		for _, name := range names {
			root, all := strings.CutSuffix(name, "/...")
			if pkg == root || all && strings.HasPrefix(pkg, root+"/") {
				return i, root, true
			}
		}
	}
	return 0, "", false
}

func checkImports(t *tree) []Finding {
	var found []Finding
	strangers := make(map[string]bool)
	for _, s := range t.gos {
		layer, family, ok := layerOf(s.pkg)
		if !ok {
			if !strangers[s.pkg] {
				strangers[s.pkg] = true
				found = append(found, Finding{Rule: "imports", File: s.path,
					Text: fmt.Sprintf("package %s has no layer: give it one in internal/rules", s.pkg)})
			}
			continue
		}
		if s.test {
			continue // tests put everything together; cycles are the compiler's to refuse
		}
		for _, spec := range s.ast.Imports {
			p, _ := strconv.Unquote(spec.Path.Value)
			if why := t.mayImport(s.pkg, layer, family, p); why != "" {
				found = append(found, s.at("imports", spec.Pos(), "%s imports %s: %s", s.pkg, p, why))
			}
		}
		found = append(found, checkPure(s)...)
	}
	return found
}

// mayImport says why pkg may not import p, or "".
func (t *tree) mayImport(pkg string, layer int, family, p string) string {
	if own, ours := strings.CutPrefix(p, t.module+"/"); ours {
		below, other, ok := layerOf(own)
		switch {
		case !ok:
			return "it has no layer: give it one in internal/rules"
		case testOnly[own] && !testOnly[pkg]:
			return "it is for tests only"
		case below > layer || below == layer && other != family:
			return "it is not below: imports point down only"
		}
		return ""
	}
	if !strings.HasPrefix(pkg, "bench/") && slices.ContainsFunc(rivals, func(r string) bool { return strings.HasPrefix(p, r) }) {
		return "it is there to be measured: only bench imports it"
	}
	if slices.Contains(pure, pkg) && slices.ContainsFunc(worldly, func(w string) bool { return p == w || strings.HasPrefix(p, w+"/") }) {
		return "a package that only takes memory does not touch the world"
	}
	if foreign, data := dataPath[pkg]; data && !standard(p) && !slices.Contains(foreign, p) {
		return "the data path does not use it: see dataPath in internal/rules"
	}
	return ""
}

// standard reports whether an import path is of the standard library: its first part has no dot.
func standard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".") && first != "C"
}

// checkPure lets packages that only take memory use the errors of package os, and nothing else of it.
func checkPure(s *source) []Finding {
	name, ok := s.imported("os")
	if !ok || !slices.Contains(pure, s.pkg) {
		return nil
	}
	var found []Finding
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && !strings.HasPrefix(sel.Sel.Name, "Err") {
				found = append(found, s.at("imports", sel.Pos(), "%s uses os.%s: a package that only takes memory does not touch the world", s.pkg, sel.Sel.Name))
			}
		}
		return true
	})
	return found
}
