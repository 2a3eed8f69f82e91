package crowd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hugebus/hugebus/internal/sys"
)

// addressFile is where a process of a round says where it listens.
const addressFile = "address"

// announce says where this process listens.
func announce(dir, address string) error {
	path := filepath.Join(dir, addressFile)
	if err := os.WriteFile(path+".new", []byte(address), 0o600); err != nil {
		return fmt.Errorf("crowd: %w", err)
	}
	return os.Rename(path+".new", path)
}

// lookUp waits until another process has said where it listens.
func lookUp(dir string) (string, error) {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(dir, addressFile))
		switch {
		case err == nil:
			return string(text), nil
		case !os.IsNotExist(err):
			return "", fmt.Errorf("crowd: %w", err)
		case time.Since(began) > patience:
			return "", fmt.Errorf("crowd: the gateway has not said after %v where it listens", patience)
		}
	}
}

// spareFiles is how many descriptors a process needs beside its connections.
const spareFiles = 64

// MaxConnections is how many connections one process can have to one address: ports are the bound.
const MaxConnections = 25000

// CheckFiles raises the limit of descriptors as far as it goes, and says what is missing for so many connections in one process.
func CheckFiles(connections int) error {
	limit, err := sys.RaiseFileLimit()
	if err != nil {
		return err
	}
	if need := uint64(connections + spareFiles); limit < need {
		return fmt.Errorf("%d connections need %d descriptors in each process, and the limit is %d: raise it (ulimit -Hn %d; "+
			"LimitNOFILE= of a systemd unit), or take fewer connections", connections, need, limit, need)
	}
	return nil
}

// ownMemory is the anonymous memory of this process that is resident, in bytes: topics are not in it.
func ownMemory() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("crowd: /proc/self/status has no line RssAnon")
}
