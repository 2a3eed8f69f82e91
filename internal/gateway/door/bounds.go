package door

import (
	"fmt"
	"time"
)

// A Bound is a number of a configuration that has a least value, and the flag that sets it.
type Bound struct {
	Flag         string
	Value, Least int64
}

// CheckBounds names the first number that is too small.
func CheckBounds(bounds ...Bound) error {
	for _, b := range bounds {
		if b.Value < b.Least {
			return fmt.Errorf("%s is %d: give at least %d", b.Flag, b.Value, b.Least)
		}
	}
	return nil
}

// NotNegative says whether a time-out that cannot be switched off by a negative one is negative.
func NotNegative(flag string, d time.Duration, zero string) error {
	if d < 0 {
		return fmt.Errorf("%s is %v: give a positive duration, or 0 for %s", flag, d, zero)
	}
	return nil
}
