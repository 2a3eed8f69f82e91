package demo

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// A payload is this, least significant bytes first:
//
//	offset  size  field
//	 0       8    number of the frame, from 0
//	 8       8    time of sending, ns of CLOCK_MONOTONIC
//	16       4    CRC-32C of everything else
//	20       4    0
//	24       n    body: bytes that the number chooses
const (
	headerSize = 24
	maxPayload = 4096
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// filler is what bodies are cut from.
var filler = makeFiller()

func makeFiller() []byte {
	b := make([]byte, 2*maxPayload)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], mix(uint64(i)))
	}
	return b
}

// mix scrambles a number (the finaliser of SplitMix64, by Steele, Lea and Flood).
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// payloadSize is the size of frame number seq: from 24 to 4096 bytes, half of them in one cache line, some 290 bytes
// on average.
func payloadSize(seq uint64) int {
	h := mix(seq)
	low, high := uint64(1025), uint64(maxPayload)
	switch class := h % 100; {
	case class < 50:
		low, high = headerSize, 48
	case class < 80:
		low, high = 49, 256
	case class < 95:
		low, high = 257, 1024
	}
	return int(low + h>>8%(high-low+1))
}

// fill makes b, of payloadSize(seq) bytes, frame number seq.
func fill(b []byte, seq uint64, sent time.Duration) {
	binary.LittleEndian.PutUint64(b, seq)
	binary.LittleEndian.PutUint64(b[8:], uint64(sent))
	binary.LittleEndian.PutUint64(b[16:], 0)
	copy(b[headerSize:], filler[mix(seq)%maxPayload:])
	binary.LittleEndian.PutUint32(b[16:], sum(b))
}

// sum is the checksum of a payload, without the field that holds it.
func sum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:16], castagnoli), castagnoli, b[20:])
}

// inspect reads a payload. Not ok: it is not what any fill has made.
func inspect(b []byte) (seq uint64, sent time.Duration, ok bool) {
	if len(b) < headerSize {
		return 0, 0, false
	}
	seq = binary.LittleEndian.Uint64(b)
	sent = time.Duration(binary.LittleEndian.Uint64(b[8:]))
	return seq, sent, len(b) == payloadSize(seq) && sum(b) == binary.LittleEndian.Uint32(b[16:])
}
