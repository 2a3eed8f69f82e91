package sys

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Room is how much of something can still be had, and who says so.
type Room struct {
	// Bytes is how much can still be had; never negative.
	Bytes int64
	// Source names the limit in words that fit into an error, such as "MemAvailable in /proc/meminfo".
	Source string
}

// AvailableMemory returns how much memory this process could still allocate without pushing the machine, or the
// memory cgroup that it is in (version 1 or 2, or one of its parents), into swapping or killing. It is the smallest of all
// these. Memory that only caches files counts as available.
//
// It is a look, not a reservation: another process may take the memory first.
func AvailableMemory() (Room, error) { return availableMemory("/") }

func availableMemory(root string) (Room, error) {
	n, err := memInfo(root, "MemAvailable")
	if err != nil {
		return Room{}, err
	}
	room := Room{Bytes: n, Source: "MemAvailable in /proc/meminfo"}
	if cg, ok := cgroupMemory(root); ok && cg.Bytes < room.Bytes {
		room = cg
	}
	return room, nil
}

// MemInfo returns one line of /proc/meminfo, such as "MemTotal", in bytes.
func MemInfo(key string) (int64, error) { return memInfo("/", key) }

func memInfo(root, key string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		name, rest, ok := strings.Cut(line, ":")
		if !ok || name != key {
			continue
		}
		value, inKB := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/meminfo: %s: %w", key, err)
		}
		if inKB {
			n <<= 10
		}
		return n, nil
	}
	return 0, fmt.Errorf("/proc/meminfo: no line %s", key)
}
