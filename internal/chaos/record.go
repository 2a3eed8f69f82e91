package chaos

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A Kind says what a Record tells.
type Kind uint8

// What readers tell, in their own order.
const (
	// KindFrame is a frame that the reader was handed.
	KindFrame Kind = 1 + iota
	// KindCorrupt is a frame whose payload contradicts itself.
	KindCorrupt
	// KindGap is a gap that the reader was told about, from Position up to To.
	KindGap
	// KindEvicted says that the reader was told of its eviction.
	KindEvicted
	// KindReached says that the reader has passed everything before Position. The first record of every reader is one.
	KindReached
	// KindJoin begins one of several subscriptions that a reader has one after the other: it starts at Position, and may
	// miss what Sequence, a Missing, says.
	KindJoin
	// KindLeft ends it.
	KindLeft
	// KindOverslept says that the reader was not woken for the frame at Position: it found it when it looked by itself.
	KindOverslept
)

// A Missing says what a subscription may miss.
type Missing uint64

// What a subscription may miss.
const (
	MissNothing Missing = iota
	MissAny             // it does not gate
	MissAtStart         // only what had been overwritten when it began
)

// recordSize is the size in bytes of a record on its way. A pipe takes that few bytes at once or not at all, so a
// durable journal leaves no half records.
const recordSize = 40

// A Record is one thing that a reader tells the checker.
type Record struct {
	Kind        Kind
	Source      uint16 // publisher slot
	Redelivered uint16
	Length      uint32 // of the payload, in bytes
	Publisher   uint32 // Unknown if the payload is too short to name it
	Sum         uint32 // digest of the payload
	Position    uint64
	Sequence    uint64
	To          uint64 // end of a gap
}

// String is the record for people, in dumps.
func (r Record) String() string {
	switch r.Kind {
	case KindGap:
		return fmt.Sprintf("gap from %d up to %d (%d bytes)", r.Position, r.To, r.To-r.Position)
	case KindEvicted:
		return "evicted"
	case KindReached:
		return fmt.Sprintf("reached %d", r.Position)
	case KindJoin:
		return fmt.Sprintf("joined at %d, may miss: %d", r.Position, r.Sequence)
	case KindLeft:
		return "left"
	case KindOverslept:
		return fmt.Sprintf("overslept the frame at %d", r.Position)
	}
	who := "too short to name its publisher"
	if r.Publisher != Unknown {
		who = fmt.Sprintf("publisher %d, sequence %d", r.Publisher, r.Sequence)
	}
	state := ""
	if r.Kind == KindCorrupt {
		state = ", CORRUPT"
	}
	return fmt.Sprintf("frame at %d: %d bytes from slot %d, %s, sum %08x, redelivered %d%s",
		r.Position, r.Length, r.Source, who, r.Sum, r.Redelivered, state)
}

func (r Record) append(b []byte) []byte {
	b = append(b, byte(r.Kind), 0)
	b = binary.LittleEndian.AppendUint16(b, r.Source)
	b = binary.LittleEndian.AppendUint32(b, r.Length)
	b = binary.LittleEndian.AppendUint64(b, r.Position)
	b = binary.LittleEndian.AppendUint64(b, r.Sequence^r.To) // one of the two is 0
	b = binary.LittleEndian.AppendUint32(b, r.Publisher)
	b = binary.LittleEndian.AppendUint32(b, r.Sum)
	b = binary.LittleEndian.AppendUint16(b, r.Redelivered)
	return append(b, 0, 0, 0, 0, 0, 0)
}

func parseRecord(b []byte) Record {
	r := Record{
		Kind: Kind(b[0]), Source: binary.LittleEndian.Uint16(b[2:]), Length: binary.LittleEndian.Uint32(b[4:]),
		Position: binary.LittleEndian.Uint64(b[8:]), Sequence: binary.LittleEndian.Uint64(b[16:]),
		Publisher: binary.LittleEndian.Uint32(b[24:]), Sum: binary.LittleEndian.Uint32(b[28:]),
		Redelivered: binary.LittleEndian.Uint16(b[32:]),
	}
	if r.Kind == KindGap {
		r.To, r.Sequence = r.Sequence, 0
	}
	return r
}

// A Journal writes records to a checker. It is for one goroutine at a time.
type Journal struct {
	w       io.Writer
	buf     []byte
	durable bool
}

// NewJournal writes to w. A durable one has written each record when Add returns, whatever happens to this process
// then; any other may keep some until Flush.
func NewJournal(w io.Writer, durable bool) *Journal {
	const room = 32 << 10
	return &Journal{w: w, buf: make([]byte, 0, room), durable: durable}
}

// Add writes one record. An error is that of the writer: nobody reads any more.
func (j *Journal) Add(r Record) error {
	j.buf = r.append(j.buf)
	if j.durable || len(j.buf)+recordSize > cap(j.buf) {
		return j.Flush()
	}
	return nil
}

// Flush writes what is buffered.
func (j *Journal) Flush() error {
	if len(j.buf) == 0 {
		return nil
	}
	_, err := j.w.Write(j.buf)
	j.buf = j.buf[:0]
	return err
}
