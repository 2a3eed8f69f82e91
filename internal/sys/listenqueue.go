package sys

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ListenQueue returns how many connections wait to be accepted on a TCP socket that listens, and how many may. The kernel tells it in
// two fields of TCP_INFO that mean something else for connections (ss -lt shows the same).
func ListenQueue(fd int) (waiting, limit int, err error) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, 0, os.NewSyscallError("getsockopt TCP_INFO", err)
	}
	return int(info.Unacked), int(info.Sacked), nil
}

// ListenOverflows returns how many connections found a full listen queue, and how many were dropped before they were accepted
// for that or any other reason, of all sockets in the network namespace.
func ListenOverflows() (overflows, drops uint64, err error) { return listenOverflows("/") }

func listenOverflows(root string) (overflows, drops uint64, err error) {
	b, err := os.ReadFile(filepath.Join(root, "proc/net/netstat"))
	if err != nil {
		return 0, 0, err
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] != "TcpExt:":
		case names == nil:
			names = fields
		default:
			overflows, err = netstat(names, fields, "ListenOverflows")
			if err == nil {
				drops, err = netstat(names, fields, "ListenDrops")
			}
			return overflows, drops, err
		}
	}
	return 0, 0, fmt.Errorf("/proc/net/netstat: no two lines TcpExt")
}

func netstat(names, values []string, name string) (uint64, error) {
	i := slices.Index(names, name)
	if i < 0 || i >= len(values) {
		return 0, fmt.Errorf("/proc/net/netstat: no %s", name)
	}
	n, err := strconv.ParseUint(values[i], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/net/netstat: %s: %w", name, err)
	}
	return n, nil
}
