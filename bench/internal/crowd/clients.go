package crowd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/internal/sys"
)

// warmConn is the connection that frames are said to be of that only find out who is there.
const warmConn = 1

// A pulled connection is one of the clients.
type pulled struct {
	fd   int
	rest []byte // of a payload that has not come whole
	seq  sequence
	warm bool
	done bool
}

// clients are all connections that are pushed to. One goroutine reads them all, as many payloads with one read as there are.
type clients struct {
	wire   *wire
	size   int
	poller *sys.Poller
	all    []pulled
	buf    []byte
	now    func() time.Duration
	times  *report.Histogram
	late   time.Duration

	warm      atomic.Int64 // clients that have had a frame
	delivered atomic.Int64 // frames times clients
	reads     int64
	left      int // clients that have not had the last frame
}

// readAtOnce is what one read of a client asks for, in bytes.
const readAtOnce = 256 << 10

func openClients(n, size int, w *wire, address string, now func() time.Duration) (_ *clients, err error) {
	if err := CheckFiles(n); err != nil {
		return nil, err
	}
	c := &clients{wire: w, size: size, buf: make([]byte, w.unit(size)+readAtOnce), now: now, times: report.NewHistogram(), left: n}
	if c.poller, err = sys.NewPoller(1024); err != nil {
		return nil, err
	}
	for i := range n {
		fd, err := connect(address, w)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("client %d of %d: %w", i+1, n, err), c.close())
		}
		c.all = append(c.all, pulled{fd: fd})
		if err := c.poller.Add(fd, int32(i)); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

// connect returns the descriptor of a connection that payloads come on. Package net gives it up: its own poller would be woken
// for every payload.
func connect(address string, w *wire) (fd int, err error) {
	nc, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return -1, err
	}
	defer nc.Close() // the descriptor is another
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return -1, err
	}
	if err := w.subscribe(nc); err != nil {
		return -1, err
	}
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	fd = -1
	var failed error
	err = raw.Control(func(own uintptr) {
		if failed = sys.ResetOnClose(int(own)); failed == nil {
			fd, failed = sys.Dup(int(own))
		}
	})
	return fd, errors.Join(err, failed)
}

func (c *clients) close() error {
	var all []error
	for i := range c.all {
		all = append(all, sys.CloseFD(c.all[i].fd))
	}
	return errors.Join(append(all, c.poller.Close())...)
}

// run reads until all clients have had the last frame, or failed says why there will be none.
func (c *clients) run(failed <-chan error) error {
	var ready []int32
	last, seen := time.Now(), int64(-1)
	for c.left > 0 {
		var err error
		if ready, err = c.poller.Wait(ready[:0], 100*time.Millisecond); err != nil {
			return err
		}
		for _, i := range ready {
			if err := c.read(&c.all[i]); err != nil {
				return fmt.Errorf("client %d: %w", i, err)
			}
		}
		select {
		case err := <-failed:
			if err != nil {
				return err
			}
			failed = nil // all is published
		default:
		}
		if c.reads != seen {
			last, seen = time.Now(), c.reads
		} else if time.Since(last) > patience {
			return fmt.Errorf("nothing came for %v: %d of %d clients miss frames, %d deliveries were made", patience, c.left, len(c.all), c.delivered.Load())
		}
	}
	return nil
}

// read reads what one client has, once.
func (c *clients) read(p *pulled) error {
	held := copy(c.buf, p.rest)
	n, err := sys.Read(p.fd, c.buf[held:])
	switch {
	case err == unix.EAGAIN:
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.ErrUnexpectedEOF
	}
	c.reads++
	rest, err := c.take(p, c.buf[:held+n], c.now())
	p.rest = append(p.rest[:0], rest...)
	return err
}

// take takes whole payloads from b, and returns the rest.
func (c *clients) take(p *pulled, b []byte, now time.Duration) ([]byte, error) {
	unit, from := c.wire.unit(c.size), len(c.wire.before)
	frames := int64(0)
	defer func() { c.delivered.Add(frames) }()
	for len(b) > 0 {
		if k := min(len(b), from); !bytes.Equal(b[:k], c.wire.before[:k]) {
			n, answer, err := c.wire.other(b)
			if err != nil || n == 0 {
				return b, err
			}
			if len(answer) > 0 {
				if _, err := sys.Write(p.fd, answer); err != nil {
					return b, err
				}
			}
			b = b[n:]
			continue
		}
		if len(b) < unit {
			return b, nil
		}
		f, err := open(b[from:from+c.size], c.size)
		if err != nil {
			return b, err
		}
		if !bytes.Equal(b[from+c.size:unit], c.wire.after) {
			return b, fmt.Errorf("payload %d is followed by %q", f.seq, b[from+c.size:unit])
		}
		b = b[unit:]
		counted, err := c.count(p, f, now)
		if err != nil {
			return b, err
		}
		frames += counted
	}
	return b, nil
}

// count notes one frame. It returns 1 for one that counts.
func (c *clients) count(p *pulled, f frame, now time.Duration) (int64, error) {
	if f.conn == warmConn {
		if !p.warm {
			p.warm = true
			c.warm.Add(1)
		}
		return 0, nil
	}
	if err := p.seq.check(f); err != nil {
		return 0, err
	}
	if p.done {
		return 0, fmt.Errorf("frame %d comes behind the last", f.seq)
	}
	if f.end {
		p.done = true
		c.left--
		return 0, nil
	}
	c.late = now - f.due
	c.times.Record(int64(c.late))
	return 1, nil
}
