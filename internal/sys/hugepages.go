package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// HugePool is the state of the machine's pool of hugetlb pages of one size. All counts are pages.
type HugePool struct {
	// PageSize is the size of a page, in bytes.
	PageSize int64
	// Total is how many the pool has (nr_hugepages).
	Total int
	// Free is how many a new mapping could still have: free ones that no mapping has reserved, and those that the
	// kernel may still add by itself (nr_overcommit_hugepages, if memory allows).
	Free int
}

// SysctlName returns the file in /sys that sets the size of the pool, and works for every page size.
func (p HugePool) SysctlName() string {
	return fmt.Sprintf("/sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages", p.PageSize>>10)
}

// HugePageSizes returns the hugetlb page sizes that this kernel offers, in bytes, the smallest first. A kernel
// without hugetlb gives none, and no error.
func HugePageSizes() ([]int64, error) { return hugePageSizes("/") }

// HugePages returns the pool of hugetlb pages of size bytes. The error is fs.ErrNotExist where this machine does not
// have pages of this size.
func HugePages(size int64) (HugePool, error) { return hugePages("/", size) }

// NrHugepages returns the two counts of HugePages.
func NrHugepages(size int64) (total, free int, err error) {
	p, err := HugePages(size)
	return p.Total, p.Free, err
}

func hugePageSizes(root string) ([]int64, error) {
	entries, err := os.ReadDir(filepath.Join(root, "sys/kernel/mm/hugepages"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var sizes []int64
	for _, e := range entries {
		kb, ok := strings.CutPrefix(e.Name(), "hugepages-")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(kb, "kB"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("/sys/kernel/mm/hugepages/%s: not a page size: %w", e.Name(), err)
		}
		sizes = append(sizes, n<<10)
	}
	slices.Sort(sizes)
	return sizes, nil
}

func hugePages(root string, size int64) (HugePool, error) {
	dir := filepath.Join(root, fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB", size>>10))
	p := HugePool{PageSize: size}
	counts := make(map[string]int, 5)
	for _, name := range []string{"nr_hugepages", "free_hugepages", "resv_hugepages",
		"nr_overcommit_hugepages", "surplus_hugepages"} {
		n, err := readInt(filepath.Join(dir, name))
		if err != nil {
			return p, err
		}
		counts[name] = int(n)
	}
	p.Total = counts["nr_hugepages"]
	// Reserved pages are still counted as free, but a mapping has the right to them.
	p.Free = max(0, counts["free_hugepages"]-counts["resv_hugepages"]) +
		max(0, counts["nr_overcommit_hugepages"]-counts["surplus_hugepages"])
	return p, nil
}

// ShmemTHPFile is where the kernel says, and root sets, whether memfds may have transparent huge pages.
const ShmemTHPFile = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

// ShmemTHP returns the chosen word of ShmemTHPFile: always, within_size, advise, never, deny or force. A kernel
// without transparent huge pages gives fs.ErrNotExist.
func ShmemTHP() (string, error) { return chosenWord(ShmemTHPFile) }

// THPFile is where the kernel says, and root sets, whether private memory (such as the Go heap) may have transparent
// huge pages.
const THPFile = "/sys/kernel/mm/transparent_hugepage/enabled"

// THP returns the chosen word of THPFile: always, madvise or never.
func THP() (string, error) { return chosenWord(THPFile) }

// THPSize returns the size in bytes of a transparent huge page that one entry of the page directory maps: 2 MiB on
// amd64. A kernel without transparent huge pages gives fs.ErrNotExist.
func THPSize() (int64, error) { return thpSize() }

// thpSize reads once: it is the same until the next boot, and a broker that adopts asks for every segment.
var thpSize = sync.OnceValues(func() (int64, error) { return readInt("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") })

// chosenWord returns the word in brackets of a file such as "always [madvise] never".
func chosenWord(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(b), "[")
	word, _, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return "", fmt.Errorf("%s: no word in brackets in %q", file, b)
	}
	return word, nil
}

// readInt reads a file that holds one number.
func readInt(file string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}
