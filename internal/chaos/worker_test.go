package chaos

import (
	"os"
	"strings"
	"testing"
)

func TestWhatIsLeftIsNamed(t *testing.T) {
	before, err := Held()
	if err != nil {
		t.Fatal(err)
	}
	if err := before.Left(); err != nil {
		t.Errorf("nothing was opened: %v", err)
	}
	p, err := NewProgress(1)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	with, err := Held()
	if err != nil {
		t.Fatal(err)
	}
	err = before.Left()
	for _, want := range []string{"1 x descriptor of /dev/null", "1 x descriptor of /memfd:hugebus.progress", "1 x mapping of hugebus.progress"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	f.Close()
	p.Close()
	if err := before.Left(); err != nil {
		t.Errorf("everything was closed: %v", err)
	}
	if err := with.Left(); err != nil {
		t.Errorf("less than before is not left over: %v", err)
	}
}
