package keeper

import (
	"fmt"
	"os"
	"slices"

	"github.com/hugebus/hugebus/internal/control"
)

// Limits bound what a keeper process holds. Zero values mean the defaults.
type Limits struct {
	// Entries is the most entries. Default 16,384.
	Entries int
	// Bytes is the most bytes of keys and data, in memory and in memfds together. Default 256 MiB.
	Bytes int64
	// Descriptors is the most descriptors, memfds with data included. The keeper's limit of open files (RLIMIT_NOFILE,
	// whose soft value it raises to the hard one) must be higher by spareFiles. Default: as many as that allows.
	Descriptors int
}

const (
	defaultEntries = 16 << 10
	defaultBytes   = 256 << 20
)

// spareFiles is how many descriptors a keeper needs besides those that it holds: standard ones, listener, lock,
// connections, an entry under way.
const spareFiles = 64 + maxSessions + MaxFiles

// An item is what a table holds for one key. Its descriptors are bare, and the table's.
type item struct {
	data  []byte
	blob  int   // memfd with data, or -1
	size  int64 // bytes of data, wherever they are
	files []int
}

// fds returns all descriptors of an item, in the order in which load hands them out.
func (it *item) fds() []int {
	if it.blob < 0 {
		return it.files
	}
	return append([]int{it.blob}, it.files...)
}

// A table holds the entries of a keeper process. It closes nothing: what is not needed any more is returned.
type table struct {
	limits      Limits
	items       map[string]*item
	keys        []string // sorted
	bytes       int64
	descriptors int
}

func newTable(l Limits) *table {
	return &table{limits: l, items: make(map[string]*item)}
}

// put replaces or makes an entry, and takes the item over. An error leaves all as it was.
func (t *table) put(key string, it *item) (unneeded []int, err error) {
	old := t.items[key]
	if err := t.room(key, old, it); err != nil {
		return nil, err
	}
	if old == nil {
		i, _ := slices.BinarySearch(t.keys, key)
		t.keys = slices.Insert(t.keys, i, key)
	} else {
		unneeded = old.fds()
		t.count(key, old, -1)
	}
	t.items[key] = it
	t.count(key, it, 1)
	return unneeded, nil
}

// update replaces an entry's data by that of it, which has no files.
func (t *table) update(key string, it *item) (unneeded []int, err error) {
	old := t.items[key]
	if old == nil {
		return nil, control.Errorf(control.CodeNotFound, "no entry %s", key)
	}
	next := &item{data: it.data, blob: it.blob, size: it.size, files: old.files}
	if err := t.room(key, old, next); err != nil {
		return nil, err
	}
	t.count(key, old, -1)
	t.count(key, next, 1)
	t.items[key] = next
	if old.blob >= 0 {
		unneeded = []int{old.blob}
	}
	return unneeded, nil
}

func (t *table) remove(key string) (unneeded []int) {
	old := t.items[key]
	if old == nil {
		return nil
	}
	i, _ := slices.BinarySearch(t.keys, key)
	t.keys = slices.Delete(t.keys, i, i+1)
	delete(t.items, key)
	t.count(key, old, -1)
	return old.fds()
}

// after returns the first entry whose key comes after key; nil if there is none.
func (t *table) after(key string) (string, *item) {
	i, found := slices.BinarySearch(t.keys, key)
	if found {
		i++
	}
	if i == len(t.keys) {
		return "", nil
	}
	return t.keys[i], t.items[t.keys[i]]
}

// clear empties the table.
func (t *table) clear() (unneeded []int) {
	for len(t.keys) > 0 {
		unneeded = append(unneeded, t.remove(t.keys[len(t.keys)-1])...)
	}
	return unneeded
}

func (t *table) count(key string, it *item, sign int) {
	t.bytes += int64(sign) * (int64(len(key)) + it.size)
	t.descriptors += sign * len(it.fds())
}

// room checks the limits for an entry that takes the place of old, which may be nil.
func (t *table) room(key string, old, it *item) error {
	entries, bytes, descriptors := len(t.items), t.bytes+it.size, t.descriptors+len(it.fds())
	if old == nil {
		entries++
		bytes += int64(len(key))
	} else {
		bytes -= old.size
		descriptors -= len(old.fds())
	}
	full := func(what string, n, limit int64) error {
		return control.Errorf(control.CodeQuota, "%s would make %d %s, above the keeper's limit of %d", key, n, what, limit)
	}
	switch {
	case entries > t.limits.Entries:
		return full("entries", int64(entries), int64(t.limits.Entries))
	case bytes > t.limits.Bytes:
		return full("bytes", bytes, t.limits.Bytes)
	case descriptors > t.limits.Descriptors:
		return full("descriptors", int64(descriptors), int64(t.limits.Descriptors))
	}
	return nil
}

// withDefaults fills zero values in, and checks the limits against how many files the process may open.
func (l Limits) withDefaults(openFiles uint64) (Limits, error) {
	if l.Entries < 0 || l.Bytes < 0 || l.Descriptors < 0 {
		return l, fmt.Errorf("keeper: limits of %d entries, %d bytes, %d descriptors: none can be negative", l.Entries, l.Bytes, l.Descriptors)
	}
	if l.Entries == 0 {
		l.Entries = defaultEntries
	}
	if l.Bytes == 0 {
		l.Bytes = defaultBytes
	}
	most := int(min(openFiles, 1<<30)) - spareFiles
	if l.Descriptors == 0 {
		l.Descriptors = most
	}
	if most <= 0 || l.Descriptors > most {
		return l, fmt.Errorf("keeper: to hold %d descriptors it needs a limit of open files of %d, which is %d: "+
			"raise the hard limit (`ulimit -Hn`, LimitNOFILE=) or lower the number", max(l.Descriptors, 1), max(l.Descriptors, 1)+spareFiles, openFiles)
	}
	return l, nil
}

// contentItem makes an item of what came with a message: files, the last of which is a memfd if c says so. It takes
// the files over in every case.
func contentItem(key string, c content, files []*os.File) (*item, error) {
	it := &item{data: c.Data, blob: -1, size: int64(len(c.Data))}
	if c.Blob {
		size, err := blobSize(files[len(files)-1], MaxData)
		if err != nil {
			closeFiles(files)
			return nil, control.Errorf(control.CodeInvalid, "%s: %v", key, err)
		}
		it.size = size
	}
	fds, err := bare(files)
	if err != nil {
		return nil, control.Errorf(control.CodeDescriptors, "%s: %v: the keeper may be at its limit of open files (RLIMIT_NOFILE)", key, err)
	}
	if c.Blob {
		it.blob, fds = fds[len(fds)-1], fds[:len(fds)-1]
	}
	it.files = fds
	return it, nil
}
