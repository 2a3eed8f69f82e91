package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hugebus/hugebus/internal/control"
)

func (r *remote) Put(ctx context.Context, key string, data []byte, files []*os.File) error {
	if err := checkEntry(key, data, files); err != nil {
		return err
	}
	return r.do(ctx, "put", key, func() error {
		fds, err := dupAll(files)
		if err != nil {
			return err
		}
		defer func() { closeFDs(fds) }()
		body := putRequest{Key: key, Files: len(fds)}
		send, err := r.pack(key, data, &body.content, fds)
		if err != nil {
			return err
		}
		fds = send // the memfd with data is closed with the others
		if len(send) > packetFiles {
			r.set++
			body.Set = r.set
			for ; len(send) > packetFiles; send = send[packetFiles:] {
				if err := r.order(ctx, opStage, stageRequest{Set: body.Set}, send[:packetFiles]); err != nil {
					return err
				}
			}
		}
		return r.order(ctx, opPut, body, send)
	})
}

func (r *remote) Update(ctx context.Context, key string, data []byte) error {
	if err := checkEntry(key, data, nil); err != nil {
		return err
	}
	return r.do(ctx, "update", key, func() error {
		body := updateRequest{Key: key}
		fds, err := r.pack(key, data, &body.content, nil)
		if err != nil {
			return err
		}
		defer closeFDs(fds)
		return r.order(ctx, opUpdate, body, fds)
	})
}

func (r *remote) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return r.do(ctx, "delete", key, func() error { return r.order(ctx, opDelete, deleteRequest{Key: key}, nil) })
}

// do runs fn when it is its turn.
func (r *remote) do(ctx context.Context, what, key string, fn func() error) error {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := fn(); err != nil {
		return fmt.Errorf("%s %q: %w", what, key, err)
	}
	return nil
}

// pack puts data into a message, or into a memfd whose descriptor comes after the others if it is large.
func (r *remote) pack(key string, data []byte, c *content, fds []int) ([]int, error) {
	if len(data) <= inlineData {
		c.Data = data
		return fds, nil
	}
	blob, err := newBlob("hugebus-keeper-"+key, data)
	if err != nil {
		return nil, err
	}
	fd, err := bare([]*os.File{blob})
	if err != nil {
		return nil, err
	}
	c.Blob = true
	return append(fds, fd...), nil
}

// order is a request whose reply says no more than that it was carried out.
func (r *remote) order(ctx context.Context, op control.Op, body any, fds []int) error {
	_, files, err := r.request(ctx, op, body, fds)
	closeFiles(files)
	return err
}

func (r *remote) Load(ctx context.Context) ([]Entry, error) {
	var entries []Entry
	for after := ""; ; {
		e, end, err := r.loadNext(ctx, after)
		if err != nil {
			closeEntries(entries)
			return nil, err
		}
		if end {
			return entries, nil
		}
		entries = append(entries, e)
		after = e.Key
	}
}

// loadNext returns the entry after a key, whole.
func (r *remote) loadNext(ctx context.Context, after string) (e Entry, end bool, err error) {
	err = r.do(ctx, "load after", after, func() (err error) {
		m, files, err := r.request(ctx, opLoad, loadRequest{After: after}, nil)
		e.Files = files
		if err != nil {
			return err
		}
		var reply loadReply
		if err := m.Decode(&reply); err != nil {
			return err
		}
		if end = reply.End; end {
			e.Close() // nothing comes with the end, but for a keeper that is not of this protocol
			return nil
		}
		if reply.Key <= after || checkKey(reply.Key) != nil || reply.Files < 0 || reply.Files > MaxFiles {
			return fmt.Errorf("the keeper names %.200q with %d descriptors: it is not of this protocol", reply.Key, reply.Files)
		}
		e.Key, e.Data = reply.Key, reply.Data
		if err := r.loadFiles(ctx, &e, reply); err != nil {
			return err
		}
		return unpack(&e, reply.Blob)
	})
	if err != nil {
		e.Close()
	}
	return e, end, err
}

// loadFiles gets the descriptors that did not come with the reply.
func (r *remote) loadFiles(ctx context.Context, e *Entry, reply loadReply) error {
	want := reply.Files
	if reply.Blob {
		want++
	}
	for len(e.Files) < want {
		_, more, err := r.request(ctx, opFiles, filesRequest{Key: e.Key, From: len(e.Files)}, nil)
		e.Files = append(e.Files, more...)
		if err != nil {
			return err
		}
		if len(more) == 0 {
			break
		}
	}
	if len(e.Files) != want {
		return fmt.Errorf("%d descriptors came, not %d", len(e.Files), want)
	}
	return nil
}

// unpack takes data out of the memfd that is the first of an entry's files, if there is one.
func unpack(e *Entry, blob bool) (err error) {
	if blob {
		f := e.Files[0]
		e.Files = e.Files[1:]
		e.Data, err = readBlob(f, MaxData)
		closeFiles([]*os.File{f})
	}
	return err
}

// sentinel makes an error that errors.Is recognises of one that the keeper has reported.
func sentinel(bad *control.Error) error {
	for code, known := range map[control.Code]error{
		control.CodeQuota:       ErrFull,
		control.CodeDescriptors: ErrFull,
		control.CodeNotFound:    ErrNotFound,
		control.CodeVersion:     ErrVersion,
	} {
		if bad.Code == code {
			return fmt.Errorf("%w: %w", known, bad)
		}
	}
	return bad
}

// Shutdown ends the keeper process of a socket, with everything that it has, and returns when it has let all go. If a
// broker holds the lease, that is a *HeldError, and nothing happens: stop the broker first. ErrNotRunning: there is no
// keeper. One that ends meanwhile, because another process has told it to, has ended: nil.
func Shutdown(ctx context.Context, socket string) error {
	if err := control.CheckSocketPath(socket); err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	r, err := dial(ctx, socket)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.hello(ctx, false); err != nil {
		return err
	}
	m, files, err := r.request(ctx, opShutdown, control.Empty{}, nil)
	closeFiles(files)
	if errors.Is(err, ErrLost) {
		return nil
	}
	if err != nil {
		var reply helloReply
		// Without a body the holder is simply not known.
		_ = m.Decode(&reply)
		return heldBy(reply.Holder, err)
	}
	// The connection is the last that it closes.
	select {
	case <-r.lost:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), fmt.Errorf("keeper: process %d was told to end, and has not yet", r.pid))
	}
}
