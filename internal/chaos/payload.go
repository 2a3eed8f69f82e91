package chaos

import (
	"encoding/binary"
	"hash/crc32"
)

// A payload is a function of its publisher's number and of its sequence number, its length included. Payloads of
// HeaderSize bytes and more say so themselves:
//
//	offset  size  field
//	 0       4    publisher
//	 4       4    length
//	 8       8    sequence number, from 0
//	 16      4    CRC-32C of the whole payload, with this field at 0
//	 20      4    0
//	 24      n    body
//
// Shorter ones have no room for that. Whoever knows the order of a publisher's frames knows which one it must be,
// and compares its bytes.

// HeaderSize is the size in bytes from which on a payload names its publisher and sequence number.
const HeaderSize = 24

// Unknown is the publisher of a payload that is too short to name it.
const Unknown = ^uint32(0)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mix scrambles two numbers (the finaliser of SplitMix64).
func mix(a, b uint64) uint64 {
	x := a*0x9E3779B97F4A7C15 + b
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Length is the length in bytes of frame seq of a publisher, from 0 to most. The first one is never too short to name
// its publisher, so that a reader which sees all frames knows whose the short ones behind it are. Most must be at
// least HeaderSize.
func Length(publisher uint32, seq uint64, most int) int {
	h := mix(uint64(publisher), seq)
	n := int(h >> 8 % uint64(most+1))
	if h&3 == 0 {
		n = int(h >> 8 % uint64(min(most, 63)+1)) // a cell or less
	}
	if seq == 0 {
		n = max(n, HeaderSize)
	}
	return n
}

// Fill makes p the payload of frame seq of a publisher; len(p) is its Length.
func Fill(p []byte, publisher uint32, seq uint64) {
	word := mix(seq, uint64(publisher)+1)
	at := 0
	if len(p) >= HeaderSize {
		binary.LittleEndian.PutUint32(p, publisher)
		binary.LittleEndian.PutUint32(p[4:], uint32(len(p)))
		binary.LittleEndian.PutUint64(p[8:], seq)
		binary.LittleEndian.PutUint64(p[16:], 0)
		at = HeaderSize
	}
	for ; len(p)-at >= 8; at += 8 {
		binary.LittleEndian.PutUint64(p[at:], word)
		word += 0x9E3779B97F4A7C15
	}
	for ; at < len(p); at++ {
		p[at] = byte(word)
		word >>= 8
	}
	if len(p) >= HeaderSize {
		binary.LittleEndian.PutUint32(p[16:], crc32.Checksum(p, castagnoli))
	}
}

// Inspect reads what a payload says about itself. Publisher is Unknown if it is too short to say it; sum is a digest
// of all its bytes. Not ok: the bytes contradict each other.
func Inspect(p []byte) (publisher uint32, seq uint64, sum uint32, ok bool) {
	if len(p) < HeaderSize {
		return Unknown, 0, crc32.Checksum(p, castagnoli), true
	}
	sum = binary.LittleEndian.Uint32(p[16:])
	crc := crc32.Update(crc32.Checksum(p[:16], castagnoli), castagnoli, zeros[:])
	crc = crc32.Update(crc, castagnoli, p[20:])
	ok = crc == sum && binary.LittleEndian.Uint32(p[4:]) == uint32(len(p))
	return binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint64(p[8:]), sum, ok
}

// zeros stands for the checksum's own field, which readers must not write to.
var zeros [4]byte
