package doorbell_test

import (
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/hugebus/hugebus/internal/doorbell"
)

// The sleeper says that it sleeps, then looks, then sleeps; who rings changes something, then looks for sleepers.
func Example() {
	bell, err := doorbell.New()
	if err != nil {
		log.Fatal(err)
	}
	defer bell.Close()
	sleeper, err := bell.Dup() // usually in another process, by FromFile
	if err != nil {
		log.Fatal(err)
	}
	defer sleeper.Close()

	var asleep, frames atomic.Int64
	go func() {
		frames.Add(1)
		if asleep.Swap(0) != 0 {
			if err := bell.Ring(); err != nil {
				log.Print(err)
			}
		}
	}()
	for frames.Load() == 0 {
		_, err := sleeper.Wait(time.Time{}, func() bool {
			asleep.Store(1)
			return frames.Load() != 0
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("a frame")
	// Output: a frame
}
