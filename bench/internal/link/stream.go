package link

import (
	"encoding/binary"
	"fmt"
	"io"
)

// prefix is the length before each payload in a stream of bytes: 4 bytes, big-endian.
const prefix = 4

// readRoom is the least that one read asks for.
const readRoom = 64 << 10

// A stream carries payloads over a pair of byte streams, each with its length in
// front. It writes at Flush, or when it holds flushAt bytes, and reads as much as there is.
type stream struct {
	r     io.Reader
	w     io.Writer
	close func() error
	out   []byte
	in    []byte
	at    int // where the unread part of in begins
	end   int // and ends
}

// flushAt bounds what is gathered before a write.
const flushAt = 64 << 10

func newStream(r io.Reader, w io.Writer, size int, closer func() error) *stream {
	room := max(readRoom, 2*(size+prefix))
	return &stream{r: r, w: w, close: closer, in: make([]byte, room), out: make([]byte, 0, flushAt+size+prefix)}
}

func (s *stream) Send(payload []byte) error {
	s.out = binary.BigEndian.AppendUint32(s.out, uint32(len(payload)))
	s.out = append(s.out, payload...)
	if len(s.out) >= flushAt {
		return s.Flush()
	}
	return nil
}

func (s *stream) Flush() error {
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.w.Write(s.out)
	s.out = s.out[:0]
	return err
}

func (s *stream) Receive(handle func([]byte) error) error {
	for {
		n, err := s.take(handle)
		if n > 0 || err != nil {
			return err
		}
		if s.at > 0 {
			s.end = copy(s.in, s.in[s.at:s.end])
			s.at = 0
		}
		got, err := s.r.Read(s.in[s.end:])
		s.end += got
		if got == 0 && err != nil {
			if err == io.EOF {
				return errClosed
			}
			return err
		}
	}
}

// take hands out the payloads that are here in full, and returns how many.
func (s *stream) take(handle func([]byte) error) (int, error) {
	n := 0
	for s.end-s.at >= prefix {
		size := int(binary.BigEndian.Uint32(s.in[s.at:]))
		if size > len(s.in)-prefix {
			return n, fmt.Errorf("link: a payload of %d bytes in a stream of smaller ones", size)
		}
		if s.end-s.at < prefix+size {
			break
		}
		payload := s.in[s.at+prefix : s.at+prefix+size]
		s.at += prefix + size
		n++
		if err := handle(payload); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *stream) Close() error { return s.close() }
