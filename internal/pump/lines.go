package pump

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

const (
	firstBuffer = 256 << 10 // bytes: many lines for one read call
	batchLines  = 1024      // lines that are published at once
)

// deadliner is a reader whose Read another goroutine can end.
type deadliner interface{ SetReadDeadline(time.Time) error }

// Lines publishes each line of r, without its newline, as one frame; what stands behind the last newline is a frame
// too. All lines that one Read returns are published together, so a lone line is published at once and a flood in
// batches.
//
// When stop ends, Lines publishes the whole lines that it has read, leaves the beginning of another (Totals.Left), and
// returns nil. If a Read can block for long, r must have SetReadDeadline for that. When abort ends, it also stops to
// wait for room in the topic, and returns abort's cause with Totals.GivenUp set.
//
// A line above the topic's maximum is an error that names its number; the lines before it are published.
func Lines(stop, abort context.Context, r io.Reader, p Publisher) (Totals, error) {
	if d, ok := r.(deadliner); ok {
		defer context.AfterFunc(stop, func() { _ = d.SetReadDeadline(time.Unix(1, 0)) })()
	}
	l := lineReader{buf: make([]byte, firstBuffer), max: p.MaxPayload()}
	began := time.Now()
	err := l.run(stop, abort, r, p)
	l.totals.Took = time.Since(began)
	return l.totals, err
}

// lineReader holds what was read and not published: buf[:end].
type lineReader struct {
	buf    []byte
	end    int
	seen   int // bytes at the start of buf in which there is no newline
	max    int
	batch  [][]byte
	totals Totals
}

func (l *lineReader) run(stop, abort context.Context, r io.Reader, p Publisher) error {
	for stop.Err() == nil {
		n, readErr := r.Read(l.buf[l.end:])
		l.end += n
		if err := l.publishLines(abort, p); err != nil {
			return err
		}
		switch {
		case readErr == nil:
		case readErr == io.EOF:
			return l.publishRest(abort, p)
		case errors.Is(readErr, os.ErrDeadlineExceeded) && stop.Err() != nil:
		default:
			return fmt.Errorf("read line %d: %w", l.totals.Frames+1, readErr)
		}
	}
	l.totals.Left = l.end
	return nil
}

// publishLines publishes the whole lines in buf, moves the rest to its start, and makes room behind it.
func (l *lineReader) publishLines(abort context.Context, p Publisher) error {
	start := 0
	for {
		size := bytes.IndexByte(l.buf[start+l.seen:l.end], '\n')
		if size < 0 {
			break
		}
		size += l.seen
		l.seen = 0
		if size > l.max {
			return errors.Join(l.flush(abort, p), l.tooLong(fmt.Sprintf("has %d bytes", size), size))
		}
		l.batch = append(l.batch, l.buf[start:start+size])
		start += size + 1
		if len(l.batch) == batchLines {
			if err := l.flush(abort, p); err != nil {
				return err
			}
		}
	}
	if err := l.flush(abort, p); err != nil {
		return err
	}
	if start > 0 { // a long line that comes in small pieces must not be copied for each
		l.end = copy(l.buf, l.buf[start:l.end])
	}
	l.seen = l.end
	if l.end > l.max {
		return l.tooLong(fmt.Sprintf("has more than %d bytes", l.max), l.end)
	}
	if free := len(l.buf) - l.end; free < firstBuffer/4 {
		l.buf = slices.Grow(l.buf, len(l.buf))
		l.buf = l.buf[:cap(l.buf)]
	}
	return nil
}

func (l *lineReader) publishRest(abort context.Context, p Publisher) error {
	if l.end > 0 {
		l.batch = append(l.batch, l.buf[:l.end])
	}
	return l.flush(abort, p)
}

func (l *lineReader) flush(abort context.Context, p Publisher) error {
	if len(l.batch) == 0 {
		return nil
	}
	err := l.totals.publish(abort, p, l.batch)
	l.batch = l.batch[:0]
	return err
}

func (l *lineReader) tooLong(what string, size int) error {
	return fmt.Errorf("line %d %s, above the topic's maximum of %d: %s", l.totals.Frames+1, what, l.max, remedy(size))
}
