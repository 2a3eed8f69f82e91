package report

import (
	"slices"
	"testing"
)

func TestMedianIsTheMiddleOrTheMeanOfTwo(t *testing.T) {
	for _, c := range []struct {
		values []int64
		want   int64
	}{
		{nil, 0}, {[]int64{7}, 7}, {[]int64{9, 1}, 5}, {[]int64{30, 10, 20}, 20}, {[]int64{4, 1, 3, 2}, 2}, {[]int64{5, 5, 100, 1, 5}, 5},
	} {
		before := slices.Clone(c.values)
		if got := Median(c.values); got != c.want {
			t.Errorf("Median(%v) = %d, want %d", c.values, got, c.want)
		}
		if !slices.Equal(before, c.values) {
			t.Errorf("Median changed its argument from %v to %v", before, c.values)
		}
	}
	if got := Median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("Median of 1, 2, 3, 4 = %v, want 2.5", got)
	}
}

func TestSpreadIsTheRangeAsAShareOfTheMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{5}, 0}, {[]float64{8, 10, 14}, 0.6}, {[]float64{3, 3, 3}, 0}, {[]float64{-1, 0, 1}, 0},
	} {
		if got := Spread(c.values); got != c.want {
			t.Errorf("Spread(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestBestIsTheFirstOfTheLowest(t *testing.T) {
	key := func(n int) int { return n }
	if got := Best([]int{3, 1, 2, 1}, key); got != 1 {
		t.Errorf("Best = %d, want 1", got)
	}
	if got := Best(nil, key); got != -1 {
		t.Errorf("Best of none = %d, want -1", got)
	}
}
