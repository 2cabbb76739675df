// Package chart plots demand and admitted tokens over time.
package chart

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/penstock-go/penstock/errors"
)

// A Panel is the plot of one policy, or of several ones for comparison. Demand and Admitted are tokens
// per step and have the same length.
type Panel struct {
	Title            string
	Start            time.Time
	Step             time.Duration
	First, Last      time.Time // of the requests, within the first and the last step; zero: they cover all steps
	Demand, Admitted []float64
	Compared         []Curve // drawn as lines in place of Admitted

	names []string // of the demand, of what is visible of it, and of what is admitted; nil if they are named so
	unit  string   // "" is tokens/s
}

// A Curve is what one of several policies has admitted, in tokens per step.
type Curve struct {
	Name     string
	Admitted []float64
}

// A Kind is a file format.
type Kind string

// File formats, by the extension of the file name.
const (
	SVG Kind = ".svg"
	PNG Kind = ".png"
)

// KindOf returns the file format for a file name.
func KindOf(path string) (Kind, error) {
	switch kind := Kind(filepath.Ext(path)); kind {
	case SVG, PNG:
		return kind, nil
	}
	return "", fmt.Errorf("plot file %q must end in .svg or .png", path)
}

// The image is 1200 pixels wide and at least 600 high; a pixel is 3/4 of a point.
const (
	width       = vg.Length(900)
	minHeight   = vg.Length(450)
	panelHeight = vg.Length(225)
	margin      = vg.Length(12)
)

// An rgb is an opaque color, as 0xRRGGBB.
type rgb uint32

// Colors of areas. Those of SVG files are in style.
const (
	rejectedColor rgb = 0xe47a6c
	admittedColor rgb = 0x5b9bc8
	maximumColor  rgb = 0xf0c07a
	demandColor   rgb = 0x303030
)

// curveColor returns the color of the curve with an index. It has a contrast of at least 3 with light and with dark pages.
func curveColor(i int) rgb {
	colors := [...]rgb{0x2f86c5, 0xc96f1a, 0x22916b, 0xb35ca8, 0x98800c, 0x6b74d6, 0xd0554a, 0x148e9e, 0x7f8c3a, 0xa3694a, 0x4f8f4a, 0xc2507d}
	return colors[i%len(colors)]
}

// RGBA implements color.Color.
func (c rgb) RGBA() (red, green, blue, alpha uint32) {
	return uint32(c>>16&0xff) * 0x101, uint32(c>>8&0xff) * 0x101, uint32(c&0xff) * 0x101, 0xffff
}

// A row is a plot and its legend, which has no entries if it is that of the row above.
type row struct {
	*plot.Plot
	legend plot.Legend
	names  []string
}

// Write draws the panels below one another, all with the same scales.
func Write(w io.Writer, kind Kind, panels []Panel) error {
	rows := make([]*row, len(panels))
	top := 0.0
	for i, panel := range panels {
		r, err := panel.plot(i == 0)
		if err != nil {
			return err
		}
		rows[i] = r
		top = max(top, r.Y.Max)
	}
	for _, r := range rows {
		r.Y.Max = top
	}
	rows[len(rows)-1].X.Label.Text = "time (UTC)"
	return writeRows(w, kind, panels[0].Title, rows)
}

// writeRows draws plots below one another, and their legends beside them.
func writeRows(w io.Writer, kind Kind, title string, rows []*row) error {
	height := max(minHeight, vg.Length(len(rows))*panelHeight)
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if kind == PNG {
		canvas = vgimg.PngCanvas{Canvas: vgimg.New(width, height)}
	} else {
		canvas = vgsvg.New(width, height)
	}
	plots, legends := make([][]*plot.Plot, len(rows)), vg.Length(0)
	for i, r := range rows {
		plots[i], legends = []*plot.Plot{r.Plot}, max(legends, r.legendWidth())
	}
	page := draw.New(canvas)
	if kind == PNG {
		page.SetColor(color.White)
		page.Fill(page.Path())
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: margin, PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: legends + 2*margin}
	for i, cells := range plot.Align(plots, tiles, page) {
		rows[i].Draw(cells[0])
		right := cells[0].Max.X + margin
		rows[i].legend.Draw(draw.Crop(cells[0], right-cells[0].Min.X, legends+margin, 0, -2*margin))
	}
	if kind == PNG {
		_, err := canvas.WriteTo(w)
		return err
	}
	return writeSVG(w, canvas, title)
}

// plot draws the demand in the color of rejected tokens, and the admitted tokens over it. What stays
// visible of the demand was rejected. Curves are drawn over the line of the demand.
func (p *Panel) plot(legend bool) (*row, error) {
	out := newRow(p.Title, cmp.Or(p.unit, "tokens/s"))
	names := p.names
	if names == nil {
		names = []string{"demand", "rejected", "admitted"}
	}
	if !legend && p.Compared == nil {
		names = []string{"", "", ""}
	}
	var err error
	if p.Compared == nil {
		err = errors.Join(out.area(names[1], p.points(p.Demand), rejectedColor), out.area(names[2], p.points(p.Admitted), admittedColor))
	}
	err = errors.Join(err, out.line(names[0], p.points(p.Demand), demandColor))
	for i, c := range p.Compared {
		err = errors.Join(err, out.line(c.Name, p.points(c.Admitted), curveColor(i)))
	}
	out.X.Min, out.X.Max = seconds(p.Start), seconds(p.Start.Add(p.Step*time.Duration(len(p.Demand))))
	return out, err
}

// newRow returns an empty plot with a grid, over the time since 1970.
func newRow(title, unit string) *row {
	out := &row{Plot: plot.New(), legend: plot.NewLegend()}
	out.BackgroundColor = nil
	out.Title.Text, out.Title.Padding = title, 6
	out.Y.Label.Text = unit
	out.X.Tick.Marker, out.Y.Tick.Marker = timeTicks{}, rateTicks{}
	for _, style := range []*draw.TextStyle{
		&out.Title.TextStyle, &out.X.Label.TextStyle, &out.Y.Label.TextStyle, &out.legend.TextStyle,
		&out.X.Tick.Label, &out.Y.Tick.Label,
	} {
		style.Font.Size, style.Font.Variant = 11, "Sans"
	}
	out.X.Tick.Label.Font.Size, out.Y.Tick.Label.Font.Size = 9, 9
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe0}, color.Gray{Y: 0xe0}
	out.Add(grid)
	out.X.Padding, out.Y.Padding = 0, 0
	out.legend.Top, out.legend.Left, out.legend.Padding = true, true, 3
	return out
}

// legendWidth returns the width of the legend with an eighth for fonts that are wider than the measured one.
func (r *row) legendWidth() (width vg.Length) {
	for _, name := range r.names {
		width = max(width, r.legend.ThumbnailWidth+r.legend.TextStyle.Width(name)*9/8)
	}
	return width
}

// area adds the area below points, and an entry of the legend unless name is empty.
func (r *row) area(name string, points plotter.XYs, fill color.Color) error {
	return r.add(name, points, func(l *plotter.Line) { l.FillColor, l.Width = fill, 0 })
}

// line adds a line, and an entry of the legend unless name is empty.
func (r *row) line(name string, points plotter.XYs, c color.Color) error {
	return r.add(name, points, func(l *plotter.Line) { l.Color, l.Width = c, 0.75 })
}

func (r *row) add(name string, points plotter.XYs, style func(*plotter.Line)) error {
	l, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	style(l)
	r.Add(l)
	_, _, _, top := plotter.XYRange(points)
	r.Y.Min, r.Y.Max = 0, max(r.Y.Max, top*1.05, 1e-9)
	if name != "" {
		r.names = append(r.names, name)
		r.legend.Add(name, l)
	}
	return nil
}

// points returns the corners of the steps, in tokens per second over seconds since 1970.
func (p *Panel) points(tokens []float64) (points plotter.XYs) {
	for _, b := range p.bins(tokens) {
		rate := b.tokens / (b.right - b.left)
		if last := len(points) - 1; last >= 0 && points[last].Y == rate {
			points[last].X = b.right
			continue
		}
		points = append(points, plotter.XY{X: b.left, Y: rate}, plotter.XY{X: b.right, Y: rate})
	}
	return points
}

// A bin has the tokens from left to right, in seconds since 1970.
type bin struct{ left, right, tokens float64 }

// bins returns the steps. The first and the last one are as wide as the part that requests cover: the rate
// over the whole step would look as if the demand had changed there. One that is covered by less than a quarter
// is merged with its neighbor, because few requests in a short time are no rate.
func (p *Panel) bins(tokens []float64) (bins []bin) {
	start, step := seconds(p.Start), p.Step.Seconds()
	for i, n := range tokens {
		left := start + float64(i)*step
		bins = append(bins, bin{left, left + step, n})
	}
	if p.Last.IsZero() || len(bins) == 0 {
		return bins
	}
	bins[0].left, bins[len(bins)-1].right = seconds(p.First), seconds(p.Last)
	if n := len(bins); n > 1 && bins[n-1].right-bins[n-1].left < step/4 {
		bins[n-2].right, bins[n-2].tokens = bins[n-1].right, bins[n-2].tokens+bins[n-1].tokens
		bins = bins[:n-1]
	}
	if len(bins) > 1 && bins[0].right-bins[0].left < step/4 {
		bins[1].left, bins[1].tokens = bins[0].left, bins[0].tokens+bins[1].tokens
		bins = bins[1:]
	}
	if b := &bins[0]; b.right-b.left < step/4 {
		b.right = b.left + step
	}
	return bins
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
