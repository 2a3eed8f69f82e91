package shm

import (
	"fmt"
	"strings"
)

// Pages is a choice of page size for a segment, or the one that it got.
type Pages uint8

const (
	// PagesAuto takes the best that there is without asking for anything: 2 MiB hugetlb, transparent huge pages, or
	// ordinary pages, in this order. It never fails for want of huge pages. It is not what a segment can have got.
	PagesAuto Pages = iota
	// Pages4KiB takes ordinary pages, whatever their size on this machine.
	Pages4KiB
	// PagesTHP takes shared memory that the kernel backs with transparent huge pages.
	PagesTHP
	// Pages2MiB takes pages of 2 MiB from the hugetlb pool.
	Pages2MiB
	// Pages1GiB takes pages of 1 GiB from the hugetlb pool.
	Pages1GiB
)

var pagesNames = [...]string{PagesAuto: "auto", Pages4KiB: "4KiB", PagesTHP: "thp", Pages2MiB: "2MiB", Pages1GiB: "1GiB"}

// ParsePages reads auto, 1GiB, 2MiB, thp or 4KiB, in upper or lower case.
func ParsePages(s string) (Pages, error) {
	for p, name := range pagesNames {
		if strings.EqualFold(s, name) {
			return Pages(p), nil
		}
	}
	return PagesAuto, fmt.Errorf("page size %q is unknown: use auto, 1GiB, 2MiB, thp or 4KiB", s)
}

// String returns what ParsePages reads.
func (p Pages) String() string {
	if int(p) < len(pagesNames) {
		return pagesNames[p]
	}
	return fmt.Sprintf("Pages(%d)", uint8(p))
}

// MarshalText is String, for JSON and YAML; a value that has no name is an error.
func (p Pages) MarshalText() ([]byte, error) {
	if int(p) >= len(pagesNames) {
		return nil, fmt.Errorf("%v is not a page size", p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText is ParsePages, for JSON and YAML.
func (p *Pages) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePages(string(text))
	return err
}

// hugetlb returns the page size in bytes if p names a hugetlb pool, else 0.
func (p Pages) hugetlb() int64 {
	switch p {
	case Pages2MiB:
		return 2 << 20
	case Pages1GiB:
		return 1 << 30
	}
	return 0
}
