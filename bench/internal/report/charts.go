package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// typeface is what texts are measured with; the page carries it, since texts that the browser draws with
// another one do not fit.
var typeface = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}

// newPlot is an empty chart in that typeface.
func newPlot() *plot.Plot {
	p := plot.New()
	for _, s := range []*text.Style{
		&p.Title.TextStyle, &p.Legend.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
	} {
		s.Font = typeface
	}
	p.Legend.Padding = 0.12 * vg.Centimeter
	return p
}

// A series is one line or bar of a chart.
type series struct {
	name string
	h    *Histogram // of a curve
	rate float64    // of a bar, frames per second
}

// palette are the colours of a chart's series, in their order. They can be told apart by
// those who see some colours alike, eight at least.
var palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x9e, 0x73, 255}, {0xcc, 0x79, 0xa7, 255},
	{0xe6, 0x9f, 0x00, 255}, {0x56, 0xb4, 0xe9, 255}, {0x66, 0x66, 0x66, 255}, {0xb0, 0xa0, 0x10, 255},
	{0x88, 0x22, 0x55, 255}, {0x33, 0x22, 0x88, 255}, {0x11, 0x77, 0x33, 255}, {0xaa, 0x44, 0x99, 255},
}

// chartWidth is that of every chart.
const chartWidth = 24 * vg.Centimeter

// curves draws how often a time is below a value: percentiles on an axis of -log10(1-p), so
// that each further nine takes as much room as the one before, and times on a log axis.
func curves(all []series) (string, error) {
	p := newPlot()
	p.X.Label.Text, p.Y.Label.Text = "percentile", "time"
	least, most, nines := math.Inf(1), math.Inf(-1), 1.0
	for i, s := range all {
		points := curve(s.h)
		for _, at := range points {
			least, most, nines = min(least, at.Y), max(most, at.Y), max(nines, at.X)
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return "", fmt.Errorf("report: curve of %s: %w", s.name, err)
		}
		line.Color, line.Width = palette[i%len(palette)], 1.6
		if i >= len(palette) {
			line.Dashes = []vg.Length{5, 3}
		}
		p.Add(line)
		p.Legend.Add(s.name, line)
	}
	p.Y.Min, p.Y.Max = math.Floor(least), math.Ceil(most)
	if p.Y.Max == p.Y.Min {
		p.Y.Max++
	}
	p.X.Min, p.X.Max = 0, math.Ceil(nines)
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks(percentTicks(int(p.X.Max))), plot.ConstantTicks(decades(p.Y.Min, p.Y.Max, timeLabel))
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
	return render(p, len(all), 9*vg.Centimeter)
}

// curve are the points of a line: -log10(1-p) and log10 of the time at p.
func curve(h *Histogram) plotter.XYs {
	var points plotter.XYs
	for _, b := range h.h.CumulativeDistributionWithTicks(10) {
		if b.Quantile >= 100 || b.ValueAt <= 0 {
			continue
		}
		points = append(points, plotter.XY{X: -math.Log10(1 - b.Quantile/100), Y: math.Log10(float64(b.ValueAt))})
	}
	// The last point is the maximum, where one in all of them lies.
	return append(points, plotter.XY{X: math.Log10(float64(h.Count())), Y: math.Log10(float64(max(h.h.Max(), 1)))})
}

// percentTicks are 0, 50%, 90%, 99% and so on.
func percentTicks(nines int) []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "0%"}, {Value: -math.Log10(0.5), Label: "50%"}}
	label := "9"
	for n := 1; n <= nines; n++ {
		switch {
		case n == 1:
			label = "90"
		case n == 2:
			label = "99"
		case n == 3:
			label = "99.9"
		default:
			label += "9"
		}
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: label + "%"})
	}
	return ticks
}

// decades are ticks at whole powers of ten, with small ones between.
func decades(from, to float64, label func(float64) string) []plot.Tick {
	var ticks []plot.Tick
	for n := from; n <= to; n++ {
		ticks = append(ticks, plot.Tick{Value: n, Label: label(n)})
		for k := 2; k < 10 && n < to; k++ {
			ticks = append(ticks, plot.Tick{Value: n + math.Log10(float64(k))})
		}
	}
	return ticks
}

func timeLabel(exponent float64) string {
	units := []string{"ns", "µs", "ms", "s"}
	n := int(exponent)
	u := min(max(n/3, 0), len(units)-1)
	return fmt.Sprintf("%.0f %s", math.Pow10(n-3*u), units[u])
}

func rateLabel(exponent float64) string {
	prefixes := []string{"", "k", "M", "G"}
	n := int(exponent)
	u := min(max(n/3, 0), len(prefixes)-1)
	return fmt.Sprintf("%.0f %s", math.Pow10(n-3*u), prefixes[u])
}

// bars draws rates as horizontal bars on a log axis, the fastest on top, each with its figure.
func bars(all []series) (string, error) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b series) int {
		switch {
		case a.rate < b.rate:
			return -1
		case a.rate > b.rate:
			return 1
		}
		return 0
	})
	least, most := math.Inf(1), math.Inf(-1)
	for _, s := range all {
		least, most = min(least, math.Log10(s.rate)), max(most, math.Log10(s.rate))
	}
	from, to := math.Floor(least-0.5), math.Ceil(most+0.3)
	p := newPlot()
	p.X.Label.Text = "frames per second (log axis)"
	values, labels := make(plotter.Values, len(all)), make([]string, len(all))
	figures := plotter.XYLabels{}
	for i, s := range all {
		values[i], labels[i] = math.Log10(s.rate)-from, s.name
		figures.XYs = append(figures.XYs, plotter.XY{X: values[i], Y: float64(i)})
		figures.Labels = append(figures.Labels, "  "+Quantity(s.rate))
	}
	b, err := plotter.NewBarChart(values, 0.45*vg.Centimeter)
	if err != nil {
		return "", fmt.Errorf("report: bars: %w", err)
	}
	b.Horizontal, b.Color, b.LineStyle.Width = true, palette[0], 0
	figuresText, err := plotter.NewLabels(figures)
	if err != nil {
		return "", fmt.Errorf("report: labels: %w", err)
	}
	for i := range figuresText.TextStyle {
		figuresText.TextStyle[i].YAlign, figuresText.TextStyle[i].Font = draw.YCenter, typeface
	}
	p.Add(b, figuresText)
	p.NominalY(labels...)
	p.X.Min, p.X.Max = 0, to-from
	ticks := decades(from, to, rateLabel)
	for i := range ticks {
		ticks[i].Value -= from
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	return render(p, 0, vg.Length(len(all))*0.7*vg.Centimeter+2*vg.Centimeter)
}

// render draws p as an SVG element, with room for a legend of so many lines on its right.
func render(p *plot.Plot, legend int, height vg.Length) (string, error) {
	p.BackgroundColor = color.Transparent
	height = max(height, vg.Length(legend)*0.5*vg.Centimeter+vg.Centimeter)
	canvas := vgsvg.New(chartWidth, height)
	area := draw.New(canvas)
	if legend > 0 {
		p.Legend.Top, p.Legend.Left = true, true
		own := p.Legend
		p.Legend = plot.NewLegend()
		const room = 8 * vg.Centimeter
		p.Draw(draw.Crop(area, 0, -room, 0, 0))
		own.Draw(draw.Crop(area, chartWidth-room+0.4*vg.Centimeter, 0, 0, -0.2*vg.Centimeter))
	} else {
		p.Draw(area)
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return "", fmt.Errorf("report: draw: %w", err)
	}
	at := bytes.Index(out.Bytes(), []byte("<svg"))
	if at < 0 {
		return "", fmt.Errorf("report: the drawing is no SVG: %.60q", out.String())
	}
	return string(out.Bytes()[at:]), nil
}
