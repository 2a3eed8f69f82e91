package pump

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Frames says what Generate makes.
type Frames struct {
	// Size is the payload of each frame, in bytes; at most the topic's maximum.
	Size int
	// Count is how many; 0: until stop ends.
	Count uint64
	// Rate is how many a second; 0: as fast as possible. Frames have their times from the start on, whatever happened to
	// those before: after a delay the late ones follow at once.
	Rate float64
}

const (
	batchFrames = 64        // frames that are published at once
	batchBytes  = 256 << 10 // bytes that are published at once, unless one frame is larger
)

// Check tells what is wrong with f for a topic whose payloads may have maxPayload bytes.
func (f Frames) Check(maxPayload int) error {
	switch {
	case f.Size < 0:
		return fmt.Errorf("size %d is negative", f.Size)
	case f.Size > maxPayload:
		return fmt.Errorf("size %d is above the topic's maximum of %d: %s", f.Size, maxPayload, remedy(f.Size))
	case f.Rate < 0 || f.Rate != f.Rate:
		return fmt.Errorf("rate %v is not a number of frames a second; 0 is as fast as possible", f.Rate)
	}
	return nil
}

// Generate publishes frames that it makes: the frame's number, counted from 1, in decimal digits, filled up to the
// size with dots; a size that is too small for the number has its last digits. It ends as Lines does.
func Generate(stop, abort context.Context, p Publisher, f Frames) (Totals, error) {
	var t Totals
	if err := f.Check(p.MaxPayload()); err != nil {
		return t, err
	}
	batch := make([][]byte, max(1, min(batchFrames, batchBytes/max(f.Size, 1))))
	for i := range batch {
		batch[i] = make([]byte, f.Size)
	}
	began := time.Now()
	for made := uint64(0); stop.Err() == nil && (f.Count == 0 || made < f.Count); {
		n := f.due(time.Since(began), made, len(batch))
		if n == 0 {
			pause(stop, f.at(made)-time.Since(began))
			continue
		}
		for i := range n {
			number(batch[i], made+uint64(i)+1)
		}
		made += uint64(n)
		if err := t.publish(abort, p, batch[:n]); err != nil {
			t.Took = time.Since(began)
			return t, err
		}
	}
	t.Took = time.Since(began)
	return t, nil
}

// at is when the frame with this many before it is due, counted from the start.
func (f Frames) at(before uint64) time.Duration {
	return time.Duration(float64(before) / f.Rate * float64(time.Second))
}

// due is how many frames are to be published now, up to most.
func (f Frames) due(elapsed time.Duration, made uint64, most int) int {
	n := uint64(most)
	if f.Count > 0 {
		n = min(n, f.Count-made)
	}
	if f.Rate > 0 {
		all := uint64(elapsed.Seconds()*f.Rate) + 1 // the first one at once
		n = min(n, all-min(all, made))
	}
	return int(n)
}

// pause waits, but not beyond the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// number writes n and dots over b.
func number(b []byte, n uint64) {
	var digits [20]byte
	text := strconv.AppendUint(digits[:0], n, 10)
	if len(text) > len(b) {
		text = text[len(text)-len(b):]
	}
	for i := copy(b, text); i < len(b); i++ {
		b[i] = '.'
	}
}
