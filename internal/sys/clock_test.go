package sys

import (
	"testing"
	"time"
)

func TestMonotonicAgreesWithTheRuntime(t *testing.T) {
	first, err := Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	base := time.Now()
	second, err := Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	inner := time.Since(base)
	outer, err := Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	// base lies between first and second, and inner was read between second and outer: both are one clock.
	if inner < 0 || second < first || outer < second || inner > outer-first {
		t.Errorf("first %v, second %v, outer %v, but since base %v", first, second, outer, inner)
	}
}
