package keeper

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
)

func (s *systemdStore) Put(ctx context.Context, key string, data []byte, files []*os.File) error {
	if err := checkEntry(key, data, files); err != nil {
		return err
	}
	return s.change(ctx, "put", key, func() error {
		numbers, fresh, err := s.number(key, files)
		if err != nil {
			return err
		}
		if err := s.room(key, len(fresh)); err != nil {
			s.drop(fresh)
			return err
		}
		// The descriptors first: a manifest is in the store only when all that it names is.
		for i, n := range fresh {
			if err := s.remember(ctx, s.files[n].name, s.files[n].fd); err != nil {
				s.drop(fresh[i:]) // those that got there are unused, and swept next time
				return err
			}
		}
		return s.commit(ctx, key, data, numbers)
	})
}

func (s *systemdStore) Update(ctx context.Context, key string, data []byte) error {
	if err := checkEntry(key, data, nil); err != nil {
		return err
	}
	return s.change(ctx, "update", key, func() error {
		e := s.entries[key]
		if e == nil {
			return ErrNotFound
		}
		if err := s.room(key, 0); err != nil {
			return err
		}
		return s.commit(ctx, key, data, e.files)
	})
}

func (s *systemdStore) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return s.change(ctx, "delete", key, func() error {
		e := s.entries[key]
		if e == nil {
			return nil
		}
		// The manifest is the entry: without it the descriptors are rubbish.
		delete(s.entries, key)
		s.use(e.files, -1)
		s.stale = append(s.stale, e.name)
		return s.sweep(ctx)
	})
}

func (s *systemdStore) Load(ctx context.Context) (entries []Entry, err error) {
	err = s.do(ctx, "load", "", func() error {
		for _, key := range slices.Sorted(maps.Keys(s.entries)) {
			e := s.entries[key]
			fds := make([]int, len(e.files))
			for i, n := range e.files {
				fds[i] = s.files[n].fd
			}
			files, err := openFDs(key, fds)
			if err != nil {
				closeEntries(entries)
				return err
			}
			entries = append(entries, Entry{Key: key, Data: slices.Clone(e.data), Files: files})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// do runs fn when it is its turn.
func (s *systemdStore) do(ctx context.Context, what, key string, fn func() error) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.closed {
		return os.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return fmt.Errorf("%s %q: %w", what, key, err)
	}
	return nil
}

// change is do for what changes the store. What an earlier call could not say to systemd is said first.
func (s *systemdStore) change(ctx context.Context, what, key string, fn func() error) error {
	return s.do(ctx, what, key, func() error {
		if len(s.stale)+len(s.unused) > 0 {
			if err := s.sweep(ctx); err != nil {
				return err
			}
		}
		return fn()
	})
}

// number returns the numbers of files, and which of those are new here. An error leaves nothing behind.
func (s *systemdStore) number(key string, files []*os.File) (numbers, fresh []uint64, err error) {
	for i, f := range files {
		n, isNew, err := s.numberOne(key, f)
		if err != nil {
			s.drop(fresh)
			return nil, nil, fmt.Errorf("keeper: descriptor %d of %s: %w", i, key, err)
		}
		if isNew {
			fresh = append(fresh, n)
		}
		numbers = append(numbers, n)
	}
	return numbers, fresh, nil
}

func (s *systemdStore) numberOne(key string, f *os.File) (n uint64, isNew bool, err error) {
	fd, err := dup(f)
	if err != nil {
		return 0, false, err
	}
	n, err = s.find(fd)
	if err != nil || n != 0 {
		closeFDs([]int{fd})
		return n, false, err
	}
	s.last++
	return s.last, true, s.addFile(storedName{number: s.last, key: key}, fd)
}

// drop forgets files of which systemd has not heard.
func (s *systemdStore) drop(fresh []uint64) {
	for _, n := range fresh {
		s.dropFile(n)
	}
}

// room checks that fresh descriptors (which are counted as files already) and a manifest fit. One place is kept free,
// because a change needs the new manifest beside the old one. What is to go is there until it is gone.
func (s *systemdStore) room(key string, fresh int) error {
	spare := 1
	if s.entries[key] != nil {
		spare = 0 // it is taken by the new manifest, and free again afterwards
	}
	n := s.foreign + len(s.files) + len(s.entries) + len(s.stale) + 1 + spare
	if n > s.most {
		return fmt.Errorf("%w: %s, with %d descriptors that are not stored yet, would make %d descriptors in systemd's store, "+
			"which holds %d: raise FileDescriptorStoreMax= (and Environment=%s=) in the unit", ErrFull, key, fresh, n, s.most, storeEnv)
	}
	return nil
}

// commit stores the manifest that makes an entry what it is from here on.
func (s *systemdStore) commit(ctx context.Context, key string, data []byte, numbers []uint64) error {
	s.last++
	name := storedName{entry: true, number: s.last, key: key}
	f, err := writeManifest(name, manifest{Key: key, Files: numbers, Data: data})
	if err != nil {
		return err
	}
	fd, err := bare([]*os.File{f})
	if err != nil {
		return err
	}
	err = s.remember(ctx, name, fd[0])
	closeFDs(fd)
	if err != nil {
		return err
	}
	// The order of uses: what both name must not look unused.
	s.use(numbers, 1)
	if old := s.entries[key]; old != nil {
		s.use(old.files, -1)
		s.stale = append(s.stale, old.name)
	}
	s.entries[key] = &sdEntry{name: name, data: slices.Clone(data), files: numbers}
	return s.sweep(ctx)
}
