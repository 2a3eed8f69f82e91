package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteCSV writes results with a line of names, which are those of the JSON. What does not
// apply to a result is empty; a column that applies to none is left out. Settings come
// last, as settings.NAME.
func WriteCSV(w io.Writer, results []Result) error {
	rows := make([]map[string]string, len(results))
	used := make(map[string]bool)
	for i, r := range results {
		rows[i] = make(map[string]string)
		text, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		d := json.NewDecoder(strings.NewReader(string(text)))
		d.UseNumber() // figures stay as they are written
		var fields map[string]any
		if err := d.Decode(&fields); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		flatten("", fields, rows[i])
		for name := range rows[i] {
			used[name] = true
		}
	}
	var header []string
	for _, name := range fieldNames() {
		if used[name] {
			header = append(header, name)
			delete(used, name)
		}
	}
	header = append(header, slices.Sorted(maps.Keys(used))...)
	out := csv.NewWriter(w)
	if err := out.Write(header); err != nil {
		return err
	}
	for _, row := range rows {
		cells := make([]string, len(header))
		for i, name := range header {
			cells[i] = row[name]
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func flatten(prefix string, fields map[string]any, into map[string]string) {
	for name, v := range fields {
		if inner, ok := v.(map[string]any); ok {
			flatten(prefix+name+".", inner, into)
			continue
		}
		into[prefix+name] = fmt.Sprint(v)
	}
}

// fieldNames are the columns that come first, in their order.
func fieldNames() []string {
	return []string{
		"scenario", "system", "variant", "payload_bytes", "batch", "publishers", "subscribers", "target_per_s", "rounds",
		"p50_ns", "p90_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns", "frames_per_s", "bytes_per_s", "raw_rtt_p50_ns",
	}
}
