package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Nodes returns the NUMA nodes that are online, in rising order. A kernel without NUMA gives none, and no error.
func Nodes() ([]int, error) { return nodes("/") }

func nodes(root string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(root, "sys/devices/system/node/online"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ParseList(string(b))
}

// ParseList reads the kernel's notation for sets of processors or nodes, such as "0-3,8,10-11".
func ParseList(s string) ([]int, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		lo, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("list %q: %w", s, err)
		}
		hi := lo
		if isRange {
			if hi, err = strconv.ParseUint(to, 10, 16); err != nil {
				return nil, fmt.Errorf("list %q: %w", s, err)
			}
		}
		if hi < lo {
			return nil, fmt.Errorf("list %q: %q ends before it starts", s, part)
		}
		for n := lo; n <= hi; n++ {
			list = append(list, int(n))
		}
	}
	return list, nil
}
