package keeper

import (
	"fmt"
	"os"
	"testing"

	"github.com/hugebus/hugebus/internal/sys"
)

func TestFilesStayTheirOwners(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		f := textFile(t, "text")
		bell := eventFile(t)
		mustPut(t, s, "k", "", f, bell)
		keptF, keptBell := dupFile(t, f), dupFile(t, bell)
		f.Close()
		bell.Close()
		for range 2 {
			entries, err := s.Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !p.keeps {
				return
			}
			e := entries[0]
			same(t, "file", keptF, e.Files[0])
			same(t, "eventfd", keptBell, e.Files[1])
			e.Close() // and the store has its own still
		}
	})
}

func dupFile(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := sys.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	d := os.NewFile(uintptr(fd), f.Name())
	t.Cleanup(func() { d.Close() })
	return d
}

func TestOneOpenFileInManyPlaces(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		shared, other := textFile(t, "shared"), textFile(t, "other")
		mustPut(t, s, "a", "", shared, shared, other)
		mustPut(t, s, "b", "", dupFile(t, shared))
		want := state{}.with("a", "", "shared", "shared", "other").with("b", "", "shared")
		p.expect(t, s, want)
		s.Close()
		s = p.open(t)
		p.expect(t, s, want)
		if err := s.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, "c", "", shared)
		s.Close()
		s = p.open(t)
		p.expect(t, s, state{}.with("b", "", "shared").with("c", "", "shared"))
		for _, key := range []string{"b", "c"} {
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		mustPut(t, s, "d", "", shared)
		s.Close()
		p.expect(t, p.open(t), state{}.with("d", "", "shared"))
	})
}

func TestEventfdsAreToldApart(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		bells := []*os.File{eventFile(t), eventFile(t), eventFile(t)}
		mustPut(t, s, "k", "", bells...)
		s.Close()
		entries, err := p.open(t).Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			for i, f := range e.Files {
				same(t, fmt.Sprint("bell ", i), bells[i], f)
			}
			e.Close()
		}
	})
}
