package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/internal/sys"
)

// blobSeals make a memfd's bytes final: whoever has it sees what was checked.
const blobSeals = sys.SealFixed | unix.F_SEAL_WRITE

// newBlob puts data into a sealed memfd.
func newBlob(name string, data []byte) (*os.File, error) {
	fd, err := sys.MemfdCreate(name, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(data); err == nil {
		err = sys.Seal(fd, blobSeals)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%d bytes into a memfd: %w", len(data), err), f.Close())
	}
	return f, nil
}

// blobSize checks that f is what newBlob made, of no more than limit bytes, and returns its size.
func blobSize(f *os.File, limit int64) (int64, error) {
	var seals int
	if err := withFD(f, func(fd int) (err error) {
		seals, err = sys.Seals(fd)
		return err
	}); err != nil {
		return 0, fmt.Errorf("data is not in a memfd: %w", err)
	}
	if seals&blobSeals != blobSeals {
		return 0, fmt.Errorf("memfd with data has seals %#x, and needs %#x, so that it cannot change any more", seals, blobSeals)
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() > limit {
		return 0, fmt.Errorf("memfd with data has %d bytes, above the limit of %d", info.Size(), limit)
	}
	return info.Size(), nil
}

// readBlob returns what is in a blob of no more than limit bytes.
func readBlob(f *os.File, limit int64) ([]byte, error) {
	size, err := blobSize(f, limit)
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), data); err != nil {
		return nil, fmt.Errorf("read memfd with data: %w", err)
	}
	return data, nil
}
