package crowd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hugebus/hugebus/bench/internal/report"
	"github.com/hugebus/hugebus/bench/internal/worker"
	"github.com/hugebus/hugebus/client"
	"github.com/hugebus/hugebus/internal/sys"
)

// One connection streams the same block of frames again and again, as fast as it goes: frame n of the stream has the number
// n modulo the frames of a block, and the last one the number of all frames before it.

const (
	roleStream = "crowd/stream"
	roleFinish = "crowd/finish"
	roleBare   = "crowd/bare"
)

const (
	blockSize = 1 << 20   // bytes of the block, about
	pieceSize = 256 << 10 // bytes of one write, and of the bare loop's buffer
)

// blockFrames is how many frames of a size a block has.
func blockFrames(size int) int { return max(blockSize/(header+size), 1) }

// Streamed is what one side of a stream counted.
type Streamed struct {
	report.Rate
	CPU time.Duration `json:"cpu"` // processor time of its process
}

// cpuSince is the processor time that this process has used since it had used so much.
func cpuSince(before time.Duration) (time.Duration, error) {
	u, err := sys.ProcessUsage()
	return u.CPU - before, err
}

// stream is the sender.
func stream(t *worker.Task) (_ any, err error) {
	var s Shape
	if err := t.Decode(&s); err != nil {
		return nil, err
	}
	frames := blockFrames(s.Size)
	block := make([]byte, frames*(header+s.Size))
	for i := range frames {
		b := block[i*(header+s.Size):][:header+s.Size]
		binary.BigEndian.PutUint32(b, uint32(s.Size))
		fill(b[header:])
		seal(b[header:], frame{seq: uint64(i)})
	}
	address, err := lookUp(s.Dir)
	if err != nil {
		return nil, err
	}
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := t.Await(); err != nil {
		return nil, err
	}
	cpu, err := cpuSince(0)
	if err != nil {
		return nil, err
	}
	sent, began := int64(0), time.Now()
	for time.Since(began) < s.Duration {
		for at := 0; at < len(block); at += pieceSize {
			if _, err := c.Write(block[at:min(at+pieceSize, len(block))]); err != nil {
				return nil, err
			}
		}
		sent += int64(frames)
	}
	last := block[:header+s.Size]
	seal(last[header:], frame{seq: uint64(sent), end: true})
	if _, err := c.Write(last); err != nil {
		return nil, err
	}
	took := time.Since(began)
	cpu, err = cpuSince(cpu)
	return Streamed{report.Rate{Frames: sent, Nanoseconds: int64(took)}, cpu}, err
}

// finish is the worker behind an ingress that one connection streams to. It checks each frame.
func finish(t *worker.Task) (any, error) {
	var s Shape
	if err := t.Decode(&s); err != nil {
		return nil, err
	}
	block := uint64(blockFrames(s.Size))
	var got, want uint64 // want is got's place in its block
	var began, ended time.Time
	var cpu time.Duration // until the first frame
	take := func(f client.Frame) error {
		m, err := open(f.Payload, s.Size)
		switch {
		case err != nil:
			return err
		case m.end && m.seq != got:
			return fmt.Errorf("%d frames came of %d", got, m.seq)
		case m.end:
			ended = time.Now()
			return errDone
		case m.seq != want:
			return fmt.Errorf("frame %d is number %d of its block instead of %d", got, m.seq, want)
		}
		if got == 0 {
			began = time.Now()
			cpu, err = cpuSince(0)
		}
		got++
		if want++; want == block {
			want = 0
		}
		return err
	}
	err := s.subscribe(t, take, func() error { return fmt.Errorf("nothing came for %v: %d frames were here", patience, got) })
	used, failed := cpuSince(cpu)
	return Streamed{report.Rate{Frames: int64(got), Nanoseconds: int64(ended.Sub(began))}, used}, errors.Join(err, failed)
}

// bare is the machine's own limit: a loop that reads the stream into a large buffer and only finds the frames' ends.
func bare(t *worker.Task) (_ any, err error) {
	var s Shape
	if err := t.Decode(&s); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		defer l.Close()
		err = announce(s.Dir, l.Addr().String())
	}
	if err == nil {
		err = t.Await()
	}
	if err != nil {
		return nil, err
	}
	c, err := l.Accept()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetReadDeadline(time.Now().Add(s.Duration + patience)); err != nil {
		return nil, err
	}
	cpu, err := cpuSince(0)
	if err != nil {
		return nil, err
	}
	frames, took, err := findEnds(c)
	used, failed := cpuSince(cpu)
	// Less the last, which is no frame of the stream.
	return Streamed{report.Rate{Frames: frames - 1, Nanoseconds: int64(took)}, used}, errors.Join(err, failed)
}

// findEnds counts the frames of a stream until its end.
func findEnds(r io.Reader) (frames int64, took time.Duration, err error) {
	buf, held := make([]byte, pieceSize), 0
	var began time.Time
	for {
		n, err := r.Read(buf[held:])
		if began.IsZero() {
			began = time.Now()
		}
		held += n
		at := 0
		for held-at >= header {
			end := at + header + int(binary.BigEndian.Uint32(buf[at:]))
			if end > held {
				break
			}
			at = end
			frames++
		}
		held = copy(buf, buf[at:held])
		switch {
		case err == io.EOF && held == 0:
			return frames, time.Since(began), nil
		case err == io.EOF:
			return frames, 0, fmt.Errorf("the stream ends with %d bytes of a frame", held)
		case err != nil:
			return frames, 0, err
		case held == len(buf):
			return frames, 0, fmt.Errorf("a frame is larger than the buffer of %d bytes", len(buf))
		}
	}
}
