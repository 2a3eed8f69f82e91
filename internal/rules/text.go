package rules

import (
	"bytes"
	"regexp"
	"strings"
)

// forbidden is what no readable file says. The words are put together here so that this file does not say them.
var forbidden = []struct {
	what *regexp.Regexp
	why  string
}{
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`), "do it, or file an issue"},
	{regexp.MustCompile(`(^|[^A-Za-z0-9_.])/(home|Users)/[A-Za-z][\w.-]*/`), "a person's folder: use a relative path or a variable"},
	{regexp.MustCompile(`(^|[^A-Za-z0-9_.])/root/[\w.]`), "a person's folder: use a relative path or a variable"},
	{regexp.MustCompile(`://[a-z0-9.-]+\.(internal|corp|lan|local|intranet)\b`), "a private host: name none"},
	{regexp.MustCompile(`\b[a-z0-9-]+\.[a-z0-9-]+\.(internal|corp|lan|intranet)\b`), "a private host: name none"},
	{regexp.MustCompile(`\b(artifact` + `ory|nex` + `us)\.[a-z0-9-]+\.`), "a private registry: name none"},
}

// checkText looks for what is left open, and for what is true on one machine only.
func checkText(t *tree) []Finding {
	var found []Finding
	for _, f := range t.texts {
		for _, rule := range forbidden {
			for _, m := range rule.what.FindAllIndex(f.text, -1) {
				found = append(found, Finding{Rule: "text", File: f.path, Line: 1 + bytes.Count(f.text[:m[1]-1], []byte("\n")),
					Text: strings.TrimSpace(string(f.text[m[0]:m[1]])) + ": " + rule.why})
			}
		}
	}
	return found
}
