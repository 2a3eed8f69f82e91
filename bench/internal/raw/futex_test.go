package raw

import (
	"sync/atomic"
	"testing"
)

func TestFutexRestEndsWithTheNumberThatWasRung(t *testing.T) {
	var there, back atomic.Uint32
	echoed := make(chan error, 1)
	const trips = 200
	go func() {
		last := uint32(0)
		for last < trips {
			n, err := rest(&there, last)
			if err == nil {
				err = ring(&back, n)
			}
			if err != nil {
				echoed <- err
				return
			}
			last = n
		}
		echoed <- nil
	}()
	for n := uint32(1); n <= trips; n++ {
		if err := ring(&there, n); err != nil {
			t.Fatal(err)
		}
		got, err := rest(&back, n-1)
		if err != nil || got != n {
			t.Fatalf("trip %d: got %d, %v", n, got, err)
		}
	}
	if err := <-echoed; err != nil {
		t.Fatal(err)
	}
}

func TestFutexRestDoesNotSleepWhenItHasBeenRung(t *testing.T) {
	var bell atomic.Uint32
	bell.Store(8)
	if n, err := rest(&bell, 7); n != 8 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
