package report

import (
	"cmp"
	"slices"
)

// Median returns the middle one of values, or the mean of the two in the middle; 0 for
// none. values is not changed.
func Median[T ~int64 | ~float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Spread says how far rounds lie apart: the largest value less the smallest, as a
// share of the median. 0 for fewer than two values.
func Spread[T ~int64 | ~float64](values []T) float64 {
	median := Median(values)
	if len(values) < 2 || median == 0 {
		return 0
	}
	return float64(slices.Max(values)-slices.Min(values)) / float64(median)
}

// Best returns the index of the item whose key is lowest, the first of equals; -1 for
// none.
func Best[E any, K cmp.Ordered](items []E, key func(E) K) int {
	best := -1
	for i := range items {
		if best < 0 || key(items[i]) < key(items[best]) {
			best = i
		}
	}
	return best
}
