package shm_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/shm"
)

func TestPagesNames(t *testing.T) {
	for p, name := range map[shm.Pages]string{
		shm.PagesAuto: "auto", shm.Pages4KiB: "4KiB", shm.PagesTHP: "thp", shm.Pages2MiB: "2MiB", shm.Pages1GiB: "1GiB",
	} {
		if got := p.String(); got != name {
			t.Errorf("String: got %q, want %q", got, name)
		}
		for _, s := range []string{name, strings.ToUpper(name), strings.ToLower(name)} {
			if got, err := shm.ParsePages(s); err != nil || got != p {
				t.Errorf("ParsePages(%q): %v, %v", s, got, err)
			}
		}
		text, err := json.Marshal(map[string]shm.Pages{"pages": p})
		if want := `{"pages":"` + name + `"}`; err != nil || string(text) != want {
			t.Errorf("JSON: %s, %v; want %s", text, err, want)
		}
		var back map[string]shm.Pages
		if err := json.Unmarshal(text, &back); err != nil || back["pages"] != p {
			t.Errorf("from JSON: %v, %v", back, err)
		}
	}
}

func TestPagesErrors(t *testing.T) {
	for _, s := range []string{"", "2MB", "huge", "1GiB ", "2"} {
		want := `page size "` + s + `" is unknown: use auto, 1GiB, 2MiB, thp or 4KiB`
		if _, err := shm.ParsePages(s); err == nil || err.Error() != want {
			t.Errorf("%q: %v", s, err)
		}
		var p shm.Pages
		if err := p.UnmarshalText([]byte(s)); err == nil || err.Error() != want {
			t.Errorf("UnmarshalText(%q): %v", s, err)
		}
	}
	if got := shm.Pages(9).String(); got != "Pages(9)" {
		t.Errorf("got %q", got)
	}
	if _, err := shm.Pages(9).MarshalText(); err == nil || err.Error() != "Pages(9) is not a page size" {
		t.Errorf("got %v", err)
	}
}
