package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// WriteHGRM writes the percentile distribution of a histogram of ns in the text form that
// HdrHistogram's plotters read, with values in µs.
//
// See http://hdrhistogram.github.io/HdrHistogram/plotFiles.html.
func (h *Histogram) WriteHGRM(w io.Writer) error {
	const perHalf, unit = 5, 1000.0
	if _, err := h.h.PercentilesPrint(w, perHalf, unit); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// WriteHGRMs writes a .hgrm file into dir for every result that has times, and returns
// their names. dir is made if it is not there.
func WriteHGRMs(dir string, results []Result) ([]string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	var names []string
	taken := make(map[string]int)
	for _, r := range results {
		if r.Histogram == nil || r.Histogram.Count() == 0 {
			continue
		}
		name := fileName(r)
		taken[name]++
		if n := taken[name]; n > 1 {
			name += fmt.Sprintf("-%d", n)
		}
		name += ".hgrm"
		if err := WriteFile(filepath.Join(dir, name), r.Histogram.WriteHGRM); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// fileName is what tells a result from others, in characters that are safe in a name.
func fileName(r Result) string {
	text := strings.Join([]string{r.Scenario, r.System, r.Variant}, "-")
	if r.PayloadBytes != 0 {
		text += fmt.Sprintf("-%dB", r.PayloadBytes)
	}
	if r.Batch > 1 {
		text += fmt.Sprintf("-batch%d", r.Batch)
	}
	if r.TargetPerSecond != 0 {
		text += fmt.Sprintf("-%.0f", r.TargetPerSecond)
	}
	return strings.Trim(unsafeRunes.ReplaceAllString(text, "-"), "-")
}

var unsafeRunes = regexp.MustCompile(`[^0-9A-Za-z]+`)
