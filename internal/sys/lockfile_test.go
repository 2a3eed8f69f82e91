package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestTryLockExcludesOtherOpenFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := open(), open()
	defer second.Close()
	if err := TryLock(first); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(second); !errors.Is(err, ErrLocked) {
		t.Errorf("while another holds it: %v", err)
	}
	first.Close()
	if err := TryLock(second); err != nil {
		t.Errorf("after the other closed: %v", err)
	}
	if err := TryLock(first); err == nil {
		t.Error("a closed file was locked")
	}
}

func TestOwnerOfANewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if uid, ok := Owner(info); !ok || uid != os.Geteuid() {
		t.Errorf("owner %d, %v", uid, ok)
	}
}
