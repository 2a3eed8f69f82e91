package keeper

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hugebus/hugebus/internal/testutil"
)

// TestThousandEntries keeps what a broker with 1,000 topics has: three memfds and two eventfds each.
func TestThousandEntries(t *testing.T) {
	const topics, files = 1000, 5
	everywhere(t, func(t *testing.T, p place) {
		s := p.open(t)
		for i := range topics {
			key := fmt.Sprintf("topic/%04d", i)
			set := append(textFiles(t, key+".ctl", key+".cursors", key+".data"), eventFile(t), eventFile(t))
			if err := s.Put(t.Context(), key, []byte("catalogue of "+key), set); err != nil {
				t.Fatal(err)
			}
			closeFiles(set)
		}
		s.Close()
		if !p.keeps {
			return
		}
		s = p.open(t)
		entries, err := s.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer closeEntries(entries)
		if len(entries) != topics {
			t.Fatalf("%d entries", len(entries))
		}
		for i, e := range entries {
			key := fmt.Sprintf("topic/%04d", i)
			if e.Key != key || string(e.Data) != "catalogue of "+key || len(e.Files) != files {
				t.Fatalf("entry %d: %q, %q, %d descriptors", i, e.Key, e.Data, len(e.Files))
			}
			for j, name := range []string{".ctl", ".cursors", ".data"} {
				if got := saying(t, e.Files[j]); got != key+name {
					t.Fatalf("descriptor %d of %s is %q", j, key, got)
				}
			}
		}
	})
}

// TestRandomLives has many brokers, one after another, make random changes.
func TestRandomLives(t *testing.T) {
	seed := testutil.Seed(t)
	everywhere(t, func(t *testing.T, p place) {
		random := rand.New(rand.NewPCG(uint64(seed), 0))
		pool := textFiles(t, numbered("f", 40)...)
		want := state{}
		files := make(map[string][]string)
		for range 12 {
			s := p.open(t)
			p.expect(t, s, want)
			if !p.keeps { // the next one starts from nothing
				want = state{}
			}
			for range random.IntN(30) {
				key := fmt.Sprint("k", random.IntN(8))
				data := strings.Repeat("d", []int{0, 10, inlineData + 10}[random.IntN(3)]+random.IntN(5))
				_, there := want[key]
				switch op := random.IntN(10); {
				case op < 5:
					var set []*os.File
					var texts []string
					for range random.IntN(14) {
						f := pool[random.IntN(len(pool))]
						set, texts = append(set, f), append(texts, f.Name())
					}
					mustPut(t, s, key, data, set...)
					files[key] = texts
					want = want.with(key, data, texts...)
				case op < 8 && there:
					if err := s.Update(t.Context(), key, []byte(data)); err != nil {
						t.Fatal(err)
					}
					want = want.with(key, data, files[key]...)
				case op == 8:
					if err := s.Delete(t.Context(), key); err != nil {
						t.Fatal(err)
					}
					want = want.without(key)
				}
			}
			p.expect(t, s, want)
			if m, ok := s.(*systemdStore); ok {
				p.systemd.check(t, m)
			}
			s.Close()
		}
	})
}

// TestKeeperSleepsWhileDoorbellsRing looks at what the keeper's poller watches: an eventfd among that would wake it at
// every ring of every topic.
func TestKeeperSleepsWhileDoorbellsRing(t *testing.T) {
	o := options(t, newSocket(t))
	r := start(t, o)
	mustPut(t, r, "k", "", eventFile(t), eventFile(t))
	before := watched(t, r.pid)
	for i := range 10 {
		mustPut(t, r, fmt.Sprint("k", i), "", eventFile(t), eventFile(t))
	}
	if after := watched(t, r.pid); after != before || before == 0 {
		t.Errorf("the keeper watches %d descriptors, and %d with twenty more eventfds", before, after)
	}
}

// watched counts what a process waits for in epoll.
func watched(t *testing.T, pid int) (n int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err != nil || target != "anon_inode:[eventpoll]" {
			continue
		}
		info, err := os.Open(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(info); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "tfd:") {
				n++
			}
		}
		info.Close()
	}
	return n
}
