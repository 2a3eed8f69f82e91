package workload

import (
	"encoding/binary"
	"fmt"

	"github.com/hugebus/hugebus/client"
)

const (
	// MinPayload is the smallest payload: a sequence number.
	MinPayload = 8
	// sampleEvery is how often, in frames, every byte of a payload is checked. A
	// power of two.
	sampleEvery = 1024
	// endBit, in a sequence number, says that the round ends with this frame.
	endBit = 1 << 63
)

// A payload is the sequence number of its frame (8 bytes, little-endian), then a body.
// One frame in sampleEvery carries a body that depends on the sequence number, all
// others the body of number 0. So a frame that is torn, stale or another one's is found
// out, and nothing but the number has to be written for most frames.

// sampled reports whether the frame's body depends on its number.
func sampled(seq uint64) bool { return seq%sampleEvery == 0 }

// sample is what of a sampled payload is written and checked: all of it, but where nearly nothing of the others is, the
// first page, or large payloads would be measured by the few that are samples.
func sample(b []byte, seqOnly bool) []byte {
	if seqOnly {
		return b[:min(len(b), 4096)]
	}
	return b
}

// firstSample is how far the first sampled number from seq on is from it.
func firstSample(seq uint64) int { return int(-seq % sampleEvery) }

// setSeq writes the sequence number.
func setSeq(b []byte, seq uint64) { binary.LittleEndian.PutUint64(b, seq) }

// getSeq reads the sequence number; b has at least MinPayload bytes.
func getSeq(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// fillBody writes the body of a number.
func fillBody(b []byte, number uint64) {
	body := b[MinPayload:]
	x := bodySeed(number)
	for len(body) >= 8 {
		x = next(x)
		binary.LittleEndian.PutUint64(body, x)
		body = body[8:]
	}
	for i := range body {
		x = next(x)
		body[i] = byte(x)
	}
}

// checkBody compares a body with that of a number.
func checkBody(b []byte, number uint64) error {
	body := b[MinPayload:]
	x := bodySeed(number)
	for at := MinPayload; len(body) >= 8; at += 8 {
		x = next(x)
		if got := binary.LittleEndian.Uint64(body); got != x {
			return fmt.Errorf("frame %d arrived changed: %#x instead of %#x at byte %d of its payload", getSeq(b)&^endBit, got, x, at)
		}
		body = body[8:]
	}
	for i := range body {
		x = next(x)
		if body[i] != byte(x) {
			return fmt.Errorf("frame %d arrived changed: %#x instead of %#x, %d bytes before the end of its payload",
				getSeq(b)&^endBit, body[i], byte(x), len(body)-i)
		}
	}
	return nil
}

// bodySeed is where the body of a number starts; never 0, where next would stay.
func bodySeed(number uint64) uint64 { return number*0x9E3779B97F4A7C15 | 1 }

// next is Marsaglia's xorshift64.
func next(x uint64) uint64 {
	x ^= x << 13
	x ^= x >> 7
	return x ^ x<<17
}

// bodySum is the exclusive or of a body's whole words and last bytes: it reads them all.
func bodySum(b []byte) (sum uint64) {
	body := b[MinPayload:]
	for len(body) >= 32 {
		sum ^= binary.LittleEndian.Uint64(body) ^ binary.LittleEndian.Uint64(body[8:]) ^
			binary.LittleEndian.Uint64(body[16:]) ^ binary.LittleEndian.Uint64(body[24:])
		body = body[32:]
	}
	for len(body) >= 8 {
		sum ^= binary.LittleEndian.Uint64(body)
		body = body[8:]
	}
	for _, c := range body {
		sum ^= uint64(c)
	}
	return sum
}

// A writer makes payloads of one size in turn.
type writer struct {
	slots [][]byte // a batch
	one   []byte
}

func newWriter(size, batch int) *writer {
	backing := make([]byte, batch*size)
	w := &writer{slots: make([][]byte, batch)}
	for i := range w.slots {
		w.slots[i] = backing[i*size : (i+1)*size : (i+1)*size]
		fillBody(w.slots[i], 0)
	}
	w.one = w.slots[0]
	return w
}

// prepare writes a frame's payload into b, which holds the body of number 0.
func prepare(b []byte, seq uint64) {
	setSeq(b, seq)
	if sampled(seq) {
		fillBody(b, seq)
	}
}

// restore undoes what prepare did to the body.
func restore(b []byte, seq uint64) {
	if sampled(seq) {
		fillBody(b, 0)
	}
}

// A reader checks payloads as they come.
type reader struct {
	size int
	want uint64 // next sequence number
	all  bool   // read every byte of every frame
	sum  uint64 // of the body of number 0
	sink uint64 // where sums go that cannot be checked
	seq  bool   // only sequence numbers were written, but for samples
}

func newReader(size int, all, seqOnly bool) *reader {
	body := make([]byte, size)
	fillBody(body, 0)
	return &reader{size: size, all: all, sum: bodySum(body), seq: seqOnly}
}

// checkAll checks frames, and gives mark the numbers of those that are the last warm one or that end the round.
func (r *reader) checkAll(frames []client.Frame, warm uint64, mark func(uint64)) error {
	for i := range frames {
		// As a user would write it, for what nearly all frames are: a call for each takes longer than to read it.
		if b := frames[i].Payload; len(b) == r.size && getSeq(b) == r.want && !r.all && !sampled(r.want) && r.want > warm {
			r.want++
			continue
		}
		if err := r.checkOne(frames[i], warm, mark); err != nil {
			return err
		}
	}
	return nil
}

// checkOne is checkAll for one frame.
func (r *reader) checkOne(f client.Frame, warm uint64, mark func(uint64)) error {
	seq, err := r.check(f.Payload)
	if seq == warm || seq >= endBit {
		mark(seq)
	}
	return err
}

// check looks at one payload and returns its sequence number, with endBit.
func (r *reader) check(b []byte) (uint64, error) {
	if len(b) != r.size {
		return 0, fmt.Errorf("frame %d has a payload of %d bytes instead of %d", r.want, len(b), r.size)
	}
	got := getSeq(b)
	seq := got &^ endBit
	if seq != r.want {
		return 0, fmt.Errorf("got frame %d instead of %d", seq, r.want)
	}
	r.want++
	if sampled(seq) {
		return got, checkBody(sample(b, r.seq), seq)
	}
	if r.all {
		return got, r.readAll(b)
	}
	return got, nil
}

func (r *reader) readAll(b []byte) error {
	sum := bodySum(b)
	if r.seq {
		r.sink ^= sum
		return nil
	}
	if sum != r.sum {
		return checkBody(b, 0)
	}
	return nil
}
