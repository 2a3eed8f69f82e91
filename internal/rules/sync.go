package rules

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// syncMark is an ordering pair's name, and, where it marks an end of it, which one. It may be broken over two lines of a
// comment. Without a side it only mentions the pair.
var syncMark = regexp.MustCompile(`SYNC\(([a-z0-9-]+)\)(?::\s*(?://\s*)?(release|acquire)\b)?`)

// orderingPage is where each pair is argued for.
const orderingPage = "docs/memory-model.md"

// checkSync finds ordering pairs that have one end only: a release that nobody acquires orders nothing. It also finds pairs that
// nobody has argued for.
func checkSync(t *tree) []Finding {
	type ends struct {
		first            Finding
		release, acquire bool
	}
	pairs := make(map[string]*ends)
	for _, s := range t.gos {
		if s.test || s.pkg == "internal/rules" {
			continue
		}
		for _, m := range syncMark.FindAllSubmatchIndex(s.text, -1) {
			name := string(s.text[m[2]:m[3]])
			if name == "name" {
				continue // how marks are explained
			}
			p := pairs[name]
			if p == nil {
				p = &ends{first: Finding{Rule: "sync", File: s.path, Line: 1 + bytes.Count(s.text[:m[0]], []byte("\n"))}}
				pairs[name] = p
			}
			if m[4] < 0 {
				continue
			}
			switch string(s.text[m[4]:m[5]]) {
			case "release":
				p.release = true
			case "acquire":
				p.acquire = true
			}
		}
	}
	argued, hasPage := t.page(orderingPage)
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		p := pairs[name]
		for _, end := range []struct {
			there bool
			what  string
		}{{p.release, "release"}, {p.acquire, "acquire"}} {
			if !end.there {
				f := p.first
				f.Text = fmt.Sprintf("the pair %s has no end marked SYNC(%s): %s", name, name, end.what)
				found = append(found, f)
			}
		}
		if hasPage && !bytes.Contains(argued, []byte("SYNC("+name+")")) {
			f := p.first
			f.Text = fmt.Sprintf("the pair %s is not in %s: say why processors keep it", name, orderingPage)
			found = append(found, f)
		}
	}
	return found
}
