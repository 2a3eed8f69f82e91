package shm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// thpPlan is what is to become of transparent huge pages in one Create.
type thpPlan struct {
	size   int64 // of a transparent huge page; 0: there can be none
	strict bool
}

// planTHP finds out whether o may have transparent huge pages. If it asks for nothing else, that they cannot be had
// is an error.
func planTHP(o Options) (thpPlan, error) {
	p := thpPlan{strict: o.Pages == PagesTHP}
	word, err := sys.ShmemTHP()
	if err == nil {
		p.size, err = sys.THPSize()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("this kernel has no transparent huge pages (no %s): use another page size, or \"auto\": %w",
			sys.ShmemTHPFile, unix.ENODEV)
	case err != nil:
	case word == "never" || word == "deny":
		err = fmt.Errorf("transparent huge pages are off for shared memory (%s is %q): as root type: echo advise > %s, "+
			"or use pages \"auto\": %w", sys.ShmemTHPFile, word, sys.ShmemTHPFile, unix.ENODEV)
	case o.Size%p.size != 0:
		err = fmt.Errorf("size must be a multiple of the transparent huge page, %s: use %s, or pages \"auto\": %w",
			FormatSize(p.size), FormatSize(roundUp(o.Size, p.size)), unix.EINVAL)
	default:
		return p, nil
	}
	if p.strict {
		return p, err
	}
	// A size that is not a multiple can have huge pages all the same, but for its end.
	if word == "never" || word == "deny" || p.size > o.Size {
		p.size = 0
	}
	return p, nil
}

// settle looks at what the kernel gave and, if that is less than all of it, asks it once more to put pages together.
func (p thpPlan) settle(m *mapping) error {
	if p.size == 0 {
		return nil
	}
	whole := int64(len(m.mem)) / p.size * p.size
	got, err := hugeMapped(m.mem)
	if err == nil && got < whole && p.strict {
		// Best effort; what counts is what is there afterwards.
		_ = sys.Collapse(m.mem)
		got, err = hugeMapped(m.mem)
	}
	if err == nil && got >= whole {
		m.pages, m.pageSize = PagesTHP, p.size
		return nil
	}
	if !p.strict {
		return nil
	}
	if err != nil {
		return fmt.Errorf("whether the kernel gave transparent huge pages: %w", err)
	}
	return fmt.Errorf("the kernel gave transparent huge pages for %s of %s only, memory is too fragmented: as root type: "+
		"echo 1 > /proc/sys/vm/compact_memory, and try again, or use pages \"2MiB\" or \"auto\": %w",
		FormatSize(got), FormatSize(whole), unix.ENOMEM)
}

// hugeMapped returns how many bytes of the mapping mem are mapped by transparent huge pages right now, as the
// kernel says in /proc/self/smaps (see proc_pid_smaps(5)).
func hugeMapped(mem []byte) (int64, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return smapsHuge(f, address(mem))
}

// smapsHuge reads smaps up to the mapping that contains addr, and no further: the kernel makes up the text while it
// is read, by walking the page tables.
func smapsHuge(r io.Reader, addr uint64) (int64, error) {
	var huge int64
	found := false
	lines := bufio.NewScanner(bufio.NewReaderSize(r, 4096))
	for lines.Scan() {
		key, rest, _ := strings.Cut(lines.Text(), " ")
		if from, to, ok := addressRange(key); ok {
			if found {
				break
			}
			found = from <= addr && addr < to
			continue
		}
		if !found || key != "ShmemPmdMapped:" && key != "FilePmdMapped:" {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/self/smaps: %s %w", key, err)
		}
		huge += n << 10
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("/proc/self/smaps: %w", err)
	}
	if !found {
		return 0, fmt.Errorf("/proc/self/smaps: no mapping at %#x", addr)
	}
	return huge, nil
}

// addressRange reads the "from-to" in hexadecimal that the first line of a mapping starts with.
func addressRange(s string) (from, to uint64, ok bool) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		return 0, 0, false
	}
	from, err1 := strconv.ParseUint(a, 16, 64)
	to, err2 := strconv.ParseUint(b, 16, 64)
	return from, to, err1 == nil && err2 == nil
}
