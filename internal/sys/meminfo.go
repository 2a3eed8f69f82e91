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
// memory cgroup that it is in (version 1 or 2, or one of its parents), into swapping or killing. It is the smallest
// of all these. Memory that only caches files counts as available.
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
	return memLine(filepath.Join(root, "proc/meminfo"), "/proc/meminfo", key)
}

// NodeMemory returns how much memory the NUMA node has that is free or only caches files.
func NodeMemory(node int) (Room, error) { return nodeMemory("/", node) }

func nodeMemory(root string, node int) (Room, error) {
	name := fmt.Sprintf("/sys/devices/system/node/node%d/meminfo", node)
	room := Room{Source: "MemFree and Inactive(file) in " + name}
	for _, key := range []string{"MemFree", "Inactive(file)"} {
		n, err := memLine(filepath.Join(root, name), name, fmt.Sprintf("Node %d %s", node, key))
		if err != nil {
			return Room{}, err
		}
		room.Bytes += n
	}
	return room, nil
}

// memLine returns the value of the line "key: value kB" of a file that errors call name.
func memLine(file, name, key string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		head, rest, ok := strings.Cut(line, ":")
		if !ok || head != key {
			continue
		}
		value, inKB := strings.CutSuffix(strings.TrimSpace(rest), " kB")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %s: %w", name, key, err)
		}
		if inKB {
			n <<= 10
		}
		return n, nil
	}
	return 0, fmt.Errorf("%s: no line %s", name, key)
}
