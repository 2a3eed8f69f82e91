package shm_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/hugebus/hugebus/shm"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1": 1, "4096": 4096, "4096B": 4096, "64MiB": 64 << 20, "64M": 64 << 20, "64m": 64 << 20, "64mib": 64 << 20,
		"64 MiB": 64 << 20, " 64MiB ": 64 << 20, "1GiB": 1 << 30, "1G": 1 << 30, "2T": 2 << 40, "2TiB": 2 << 40, "16k": 16 << 10,
		"64MB": 64e6, "1GB": 1e9, "3TB": 3e12, "5kB": 5000, "1.5GiB": 3 << 29, "0.5K": 512, ".5K": 512, "007": 7,
		"9223372036854775807": math.MaxInt64,
	} {
		if got, err := shm.ParseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestParseSizeErrors(t *testing.T) {
	for s, want := range map[string]string{
		"":                    "is not a number of bytes: write it like 4096, 64KiB, 16MiB or 1.5GiB",
		"B":                   "is not a number of bytes",
		"MiB":                 "is not a number of bytes",
		"-1":                  "is not a number of bytes",
		"-1MiB":               "is not a number of bytes",
		"+1":                  "is not a number of bytes",
		"1e9":                 "is not a number of bytes",
		"1e999999999":         "is not a number of bytes",
		"1/2":                 "is not a number of bytes",
		"0x10":                "is not a number of bytes",
		"1_000":               "is not a number of bytes",
		"1.2.3":               "is not a number of bytes",
		".":                   "is not a number of bytes",
		"12 34":               "is not a number of bytes",
		"64MiBs":              "is not a number of bytes",
		"64PiB":               "is not a number of bytes",
		"1.5":                 "is not a whole number of bytes",
		"0.3KiB":              "is not a whole number of bytes",
		"9223372036854775808": "is above the limit of 9223372036854775807 bytes",
		"9999999TiB":          "is above the limit of 9223372036854775807 bytes",

		strings.Repeat("9", 100): "is not a number of bytes",
	} {
		got, err := shm.ParseSize(s)
		if err == nil || !strings.HasPrefix(err.Error(), `size "`+s+`" `) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d, %v; want %q", s, got, err, want)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0B", 1: "1B", 1000: "1000B", 4096: "4KiB", 1536: "1536B", 64 << 20: "64MiB", 3 << 29: "1536MiB", 1 << 30: "1GiB",
		1 << 40: "1TiB", 1<<30 + 1: "1073741825B",
	} {
		if got := shm.FormatSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestParseSizeReadsWhatFormatSizeWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, math.MaxInt64>>40).Draw(t, "n") << rapid.IntRange(0, 40).Draw(t, "shift")
		if got, err := shm.ParseSize(shm.FormatSize(n)); err != nil || got != n {
			t.Fatalf("%d becomes %q becomes %d, %v", n, shm.FormatSize(n), got, err)
		}
	})
}
