package crowd

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// A payload, all numbers little-endian:
//
//	offset  size  field
//	     0     8  when it was to be sent, in ns of the host's monotonic clock
//	     8     8  its number among those of its connection, from 0; the highest bit marks the last, which is not counted
//	    16     4  connection
//	    20     …  filler
//	size-4     4  CRC-32C of everything before

// MinPayload is the smallest payload, in bytes.
const MinPayload = 24

const endBit = 1 << 63

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A frame is what a payload says.
type frame struct {
	due  time.Duration
	seq  uint64 // without endBit
	conn uint32
	end  bool
}

// fill writes the filler, which seal leaves alone.
func fill(b []byte) {
	for i := range b {
		b[i] = byte(i * 7)
	}
}

// seal writes a frame into a payload that was filled.
func seal(b []byte, f frame) {
	seq := f.seq
	if f.end {
		seq |= endBit
	}
	binary.LittleEndian.PutUint64(b, uint64(f.due))
	binary.LittleEndian.PutUint64(b[8:], seq)
	binary.LittleEndian.PutUint32(b[16:], f.conn)
	body := len(b) - 4
	binary.LittleEndian.PutUint32(b[body:], crc32.Checksum(b[:body], castagnoli))
}

// open reads a payload of the given size, and compares its checksum.
func open(b []byte, size int) (frame, error) {
	if len(b) != size {
		return frame{}, fmt.Errorf("a payload has %d bytes instead of %d", len(b), size)
	}
	body := len(b) - 4
	seq := binary.LittleEndian.Uint64(b[8:])
	f := frame{
		due: time.Duration(binary.LittleEndian.Uint64(b)), seq: seq &^ endBit, conn: binary.LittleEndian.Uint32(b[16:]), end: seq&endBit != 0,
	}
	if sum, want := crc32.Checksum(b[:body], castagnoli), binary.LittleEndian.Uint32(b[body:]); sum != want {
		return f, fmt.Errorf("frame %d of connection %d arrived changed: checksum %08x instead of %08x", f.seq, f.conn, sum, want)
	}
	return f, nil
}

// A sequence checks that the frames of one connection come one after the other.
type sequence struct{ next uint64 }

func (s *sequence) check(f frame) error {
	if f.seq != s.next {
		return fmt.Errorf("frame %d of connection %d came instead of frame %d", f.seq, f.conn, s.next)
	}
	if !f.end {
		s.next++
	}
	return nil
}
