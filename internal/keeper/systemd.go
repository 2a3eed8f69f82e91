package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/hugebus/hugebus/internal/sys"
)

// storeEnv says how many descriptors systemd stores for this service (systemd 254; a unit may set it itself for older
// ones: it is the same number as FileDescriptorStoreMax=).
const storeEnv = "FDSTORE"

// SystemdUsable reports whether systemd stores descriptors for this process: whether $NOTIFY_SOCKET and $FDSTORE are set.
func SystemdUsable() bool {
	n, err := strconv.Atoi(os.Getenv(storeEnv))
	return err == nil && n > 0 && os.Getenv(notifyEnv) != ""
}

// A systemdStore keeps entries in systemd's file descriptor store. systemd tells nobody what it stores, so this process
// remembers; and it counts, because systemd drops what is too much without a word.
//
// Only one process at a time is a service's main process, whose messages alone are heard (NotifyAccess=main): that is
// the lease.
type systemdStore struct {
	log    *slog.Logger
	notify *notifier
	most   int           // descriptors that systemd stores
	turn   chan struct{} // holds a token while one call is under way; guards all below
	closed bool

	foreign int // descriptors in the store that this release does not understand
	last    uint64
	entries map[string]*sdEntry
	files   map[uint64]*sdFile
	byInode map[sys.Inode][]uint64 // numbers of files
	stale   []storedName           // manifests that are to go
	unused  map[uint64]bool        // numbers of files that are to go, unless an entry comes that needs them
}

// An sdEntry is an entry as its newest manifest has it.
type sdEntry struct {
	name  storedName
	data  []byte
	files []uint64
}

// An sdFile is an open file in the store, and a bare descriptor of it here: to compare others with, and to load.
type sdFile struct {
	name  storedName
	fd    int
	inode sys.Inode
	uses  int // by entries
}

// Systemd returns the Store that keeps entries in systemd's file descriptor store, with what that handed to this
// process at its start. It takes over what is stored among inherited. What a killed broker left half done is cleared away. log may
// be nil.
func Systemd(ctx context.Context, inherited *Inherited, log *slog.Logger) (Store, error) {
	most, err := strconv.Atoi(os.Getenv(storeEnv))
	if err != nil || most <= 0 {
		return nil, fmt.Errorf("keeper: $%s is %q, not the number of descriptors that systemd stores: "+
			"set FileDescriptorStoreMax= in the unit, and before systemd 254 Environment=%s= to the same number", storeEnv, os.Getenv(storeEnv), storeEnv)
	}
	address := os.Getenv(notifyEnv)
	if address == "" {
		return nil, fmt.Errorf("keeper: $%s is not set: set NotifyAccess=main in the unit", notifyEnv)
	}
	return openSystemd(ctx, address, most, inherited, log)
}

func openSystemd(ctx context.Context, address string, most int, inherited *Inherited, log *slog.Logger) (*systemdStore, error) {
	n, err := dialNotify(address)
	if err != nil {
		return nil, err
	}
	s := &systemdStore{
		log: log, notify: n, most: most, turn: make(chan struct{}, 1),
		entries: make(map[string]*sdEntry), files: make(map[uint64]*sdFile), byInode: make(map[sys.Inode][]uint64),
		unused: make(map[uint64]bool),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	for _, f := range inherited.unknown {
		s.log.Error("systemd's store has a descriptor of another release of hugebus, which stays there", "name", f.Name())
	}
	s.foreign = len(inherited.unknown)
	stored := inherited.stored
	inherited.stored = nil
	err = s.adopt(stored)
	if err == nil {
		err = s.sweep(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// adopt makes the state of what systemd handed over. It closes the files.
func (s *systemdStore) adopt(stored []*os.File) error {
	defer closeFiles(stored)
	var manifests []*os.File
	for _, f := range stored {
		name, _ := parseName(f.Name())
		s.last = max(s.last, name.number)
		if name.entry {
			manifests = append(manifests, f)
			continue
		}
		fd, err := dup(f)
		if err != nil {
			return fmt.Errorf("keeper: adopt %s: %w", name, err)
		}
		if s.files[name.number] != nil {
			s.log.Error("systemd has two descriptors of one number; the first is taken", "name", name.String())
			closeFDs([]int{fd})
			continue
		}
		if err := s.addFile(name, fd); err != nil {
			return err
		}
	}
	return s.adoptManifests(manifests)
}

// adoptManifests takes the newest manifest of each key whose descriptors are all there.
func (s *systemdStore) adoptManifests(files []*os.File) error {
	slices.SortFunc(files, func(a, b *os.File) int { // newest first
		x, _ := parseName(a.Name())
		y, _ := parseName(b.Name())
		return cmp.Compare(y.number, x.number)
	})
	for _, f := range files {
		name, _ := parseName(f.Name())
		if s.entries[name.key] != nil {
			s.stale = append(s.stale, name)
			continue
		}
		m, err := readManifest(name, f)
		for _, number := range m.Files {
			if err == nil && s.files[number] == nil {
				err = fmt.Errorf("descriptor %d is missing", number)
			}
		}
		if err != nil {
			s.log.Error("an entry in systemd's store is not whole, and is dropped", "name", name.String(), "error", err)
			s.stale = append(s.stale, name)
			continue
		}
		s.entries[name.key] = &sdEntry{name: name, data: m.Data, files: m.Files}
		s.use(m.Files, 1)
	}
	return nil
}

func (s *systemdStore) addFile(name storedName, fd int) error {
	inode, err := sys.InodeOf(fd)
	if err != nil {
		closeFDs([]int{fd})
		return fmt.Errorf("keeper: %s: %w", name, err)
	}
	s.files[name.number] = &sdFile{name: name, fd: fd, inode: inode}
	s.byInode[inode] = append(s.byInode[inode], name.number)
	s.unused[name.number] = true
	return nil
}

func (s *systemdStore) dropFile(number uint64) {
	f := s.files[number]
	delete(s.files, number)
	delete(s.unused, number)
	rest := slices.DeleteFunc(s.byInode[f.inode], func(n uint64) bool { return n == number })
	if s.byInode[f.inode] = rest; len(rest) == 0 {
		delete(s.byInode, f.inode)
	}
	closeFDs([]int{f.fd})
}

func (s *systemdStore) use(numbers []uint64, sign int) {
	for _, n := range numbers {
		f := s.files[n]
		if f.uses += sign; f.uses == 0 {
			s.unused[n] = true
		} else {
			delete(s.unused, n)
		}
	}
}

// find returns the number under which an open file is stored already, or 0.
func (s *systemdStore) find(fd int) (uint64, error) {
	inode, err := sys.InodeOf(fd)
	if err != nil {
		return 0, err
	}
	for _, n := range s.byInode[inode] {
		same, err := sys.SameOpenFile(fd, s.files[n].fd)
		if err != nil {
			return 0, fmt.Errorf("is it stored already? systemd would drop it: %w", err)
		}
		if same {
			return n, nil
		}
	}
	return 0, nil
}

// sweep takes out of the store what no entry needs: after a change, and what a killed broker left. What it cannot say to
// systemd stays on the list.
func (s *systemdStore) sweep(ctx context.Context) error {
	for len(s.stale) > 0 {
		if err := s.forget(ctx, s.stale[0]); err != nil {
			return err
		}
		s.stale = s.stale[1:]
	}
	for _, n := range slices.Sorted(maps.Keys(s.unused)) {
		if err := s.forget(ctx, s.files[n].name); err != nil {
			return err
		}
		s.dropFile(n)
	}
	return s.notify.barrier(ctx)
}

func (s *systemdStore) forget(ctx context.Context, name storedName) error {
	return s.notify.send(ctx, "FDSTOREREMOVE=1\nFDNAME="+name.String())
}

// remember stores a descriptor. Without FDPOLL=0 systemd would drop one whose other end hangs up.
func (s *systemdStore) remember(ctx context.Context, name storedName, fd int) error {
	return s.notify.send(ctx, "FDSTORE=1\nFDPOLL=0\nFDNAME="+name.String(), fd)
}

func (s *systemdStore) Lost() <-chan struct{} { return nil }

func (s *systemdStore) String() string {
	return "systemd's file descriptor store (" + strconv.Itoa(s.most) + " descriptors at most)"
}

// Close forgets everything on this side. systemd has it still, for the next process.
func (s *systemdStore) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.closed {
		return os.ErrClosed
	}
	s.closed = true
	for _, f := range s.files {
		closeFDs([]int{f.fd})
	}
	s.files, s.byInode, s.entries = nil, nil, nil
	return s.notify.close()
}
