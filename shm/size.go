package shm

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// units are the suffixes of sizes, and how many bytes each stands for. A lone letter is binary, as in dd and mount:
// capacities are powers of two.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3},
	{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10},
	{"B", 1},
}

// ParseSize reads a number of bytes such as 4096, 64KiB, 1.5GiB or 64M. KiB, MiB, GiB, TiB and the letters K, M, G,
// T alone are powers of 1,024; KB, MB, GB and TB are powers of 1,000. Case does not matter, and a space before the
// unit is allowed. Sizes that are negative, not a whole number of bytes, or above 8 EiB are errors.
func ParseSize(s string) (int64, error) {
	number, unit := strings.TrimSpace(s), int64(1)
	for _, u := range units {
		if len(number) > len(u.suffix) && strings.EqualFold(number[len(number)-len(u.suffix):], u.suffix) {
			number, unit = strings.TrimSpace(number[:len(number)-len(u.suffix)]), u.bytes
			break
		}
	}
	// A number is digits with at most one point; what else big.Rat reads, such as "1/3" and "1e999999999", is not
	// for us.
	if number == "" || strings.Trim(number, "0123456789.") != "" || len(number) > 40 {
		return 0, fmt.Errorf("size %q is not a number of bytes: write it like 4096, 64KiB, 16MiB or 1.5GiB", s)
	}
	n, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("size %q is not a number of bytes: write it like 4096, 64KiB, 16MiB or 1.5GiB", s)
	}
	n.Mul(n, new(big.Rat).SetInt64(unit))
	if !n.IsInt() {
		return 0, fmt.Errorf("size %q is not a whole number of bytes", s)
	}
	if !n.Num().IsInt64() {
		return 0, fmt.Errorf("size %q is above the limit of %d bytes", s, int64(math.MaxInt64))
	}
	return n.Num().Int64(), nil
}

// FormatSize writes n bytes exactly, in the largest binary unit that divides them: 64MiB, 4KiB, 1000B. ParseSize
// reads it back as the same number.
func FormatSize(n int64) string {
	for _, u := range units[:4] {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// roughly writes n bytes for people: 64MiB, 23.2GiB, 1000B.
func roughly(n int64) string {
	for _, u := range units[:4] {
		if n >= u.bytes && n%u.bytes != 0 {
			return strconv.FormatFloat(float64(n)/float64(u.bytes), 'f', 1, 64) + u.suffix
		}
		if n >= u.bytes {
			break
		}
	}
	return FormatSize(n)
}
