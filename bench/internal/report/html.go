package report

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"codeberg.org/go-fonts/liberation/liberationsansregular"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("page").Parse(page))

// view is what the page shows.
type view struct {
	*Document
	Parts []part
	// Font is the rule that has the typeface of the drawings.
	Font template.CSS
}

// part is one section of the page.
type part struct {
	Name   string
	Charts []chart
	Header []string
	Rows   []row
	Notes  []string
}

type chart struct {
	Title string
	// SVG was drawn by this package, and its texts were escaped on the way.
	SVG template.HTML
}

type row struct {
	Cells []string
	Own   bool // a row of hugebus
}

// WriteHTML writes the document as one page that needs no other file and no network:
// drawings are in it as SVG, and there is no script.
func (d *Document) WriteHTML(w io.Writer) error {
	v := view{Document: d, Font: fontRule()}
	for _, s := range d.Sections {
		charts, err := chartsOf(s.Results)
		if err != nil {
			return err
		}
		header, rows := tableOf(s.Results)
		v.Parts = append(v.Parts, part{Name: s.Name, Charts: charts, Header: header, Rows: rows, Notes: s.Notes})
	}
	if err := pageTemplate.Execute(w, v); err != nil {
		return fmt.Errorf("report: write page: %w", err)
	}
	return nil
}

func fontRule() template.CSS {
	return template.CSS(fmt.Sprintf("@font-face { font-family: \"Liberation Sans\"; src: url(\"data:font/ttf;base64,%s\"); }",
		base64.StdEncoding.EncodeToString(liberationsansregular.TTF)))
}

// tableOf is the table for people, less the columns that would be empty.
func tableOf(results []Result) (header []string, rows []row) {
	rows = make([]row, len(results))
	for i, r := range results {
		rows[i].Own = r.System == "hugebus"
	}
	for _, c := range columns {
		cells, used := make([]string, len(results)), false
		for i, r := range results {
			cells[i] = c.cell(r)
			used = used || cells[i] != ""
		}
		if !used {
			continue
		}
		header = append(header, c.name)
		for i := range rows {
			rows[i].Cells = append(rows[i].Cells, cells[i])
		}
	}
	return header, rows
}

// maxSeries is how many curves a chart shows at most: more cannot be told apart.
const maxSeries = 24

// chartsOf draws, for each kind of result and payload, curves of those that have times
// and bars of those that have rates.
func chartsOf(results []Result) ([]chart, error) {
	type group struct {
		title string
		all   []series
	}
	var order []string
	groups := make(map[string]*group)
	add := func(kind string, r Result, s series) {
		title := titleOf(kind, r)
		if groups[title] == nil {
			groups[title] = &group{title: title}
			order = append(order, title)
		}
		if g := groups[title]; len(g.all) < maxSeries {
			g.all = append(g.all, s)
		}
	}
	limit := rawTrip(results)
	for _, r := range results {
		switch {
		case r.Histogram != nil && r.Histogram.Count() > 0 && r.System != "raw":
			add(curvesOf, r, series{name: nameOf(r), h: r.Histogram})
		case r.FramesPerSecond > 0 && r.System != "raw":
			add(barsOf, r, series{name: nameOf(r), rate: r.FramesPerSecond})
		}
	}
	var charts []chart
	for _, title := range order {
		g, draw := groups[title], bars
		if strings.HasPrefix(title, curvesOf) {
			draw = curves
			if limit.Histogram != nil {
				g.all = append(g.all, series{name: "raw cache line, same cores", h: limit.Histogram})
			}
		}
		svg, err := draw(g.all)
		if err != nil {
			return nil, err
		}
		charts = append(charts, chart{Title: g.title, SVG: template.HTML(svg)})
	}
	return charts, nil
}

const (
	curvesOf = "Times"
	barsOf   = "Rates"
)

func titleOf(kind string, r Result) string {
	title := kind + ": " + r.Scenario
	if r.PayloadBytes != 0 {
		title += ", " + size(r.PayloadBytes)
	}
	if r.TargetPerSecond != 0 {
		title += fmt.Sprintf(", %s frames/s", Quantity(r.TargetPerSecond))
	}
	return title
}

// nameOf tells a result from others of its chart.
func nameOf(r Result) string {
	name := r.System
	if r.Variant != "" {
		name += " (" + r.Variant + ")"
	}
	if r.Batch > 1 {
		name += fmt.Sprintf(", batch %d", r.Batch)
	}
	if r.Publishers > 1 || r.Subscribers > 1 {
		name += fmt.Sprintf(", %d to %d", max(r.Publishers, 1), max(r.Subscribers, 1))
	}
	if r.Behind {
		name += ", behind"
	}
	return name
}

// rawTrip is the machine's own round trip, if it is among the results.
func rawTrip(results []Result) Result {
	for _, r := range results {
		if r.Scenario == "raw-rtt" {
			return r
		}
	}
	return Result{}
}
