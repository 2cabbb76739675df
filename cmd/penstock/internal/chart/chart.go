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
)

// A Panel is the plot of one policy. Demand and Admitted are tokens per step and have the same
// length.
type Panel struct {
	Title            string
	Start            time.Time
	Step             time.Duration
	Demand, Admitted []float64

	names []string // of the demand, of what is visible of it, and of what is admitted; nil if they are named so
	unit  string   // "" is tokens/s
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
	legendWidth = vg.Length(84)
)

// An rgb is an opaque color, as 0xRRGGBB.
type rgb uint32

// Colors of areas. Those of SVG files are in style.
const (
	rejectedColor rgb = 0xe47a6c
	admittedColor rgb = 0x5b9bc8
	maximumColor  rgb = 0xf0c07a
)

// RGBA implements color.Color.
func (c rgb) RGBA() (red, green, blue, alpha uint32) {
	return uint32(c>>16&0xff) * 0x101, uint32(c>>8&0xff) * 0x101, uint32(c&0xff) * 0x101, 0xffff
}

// Write draws the panels below one another, all with the same scales.
func Write(w io.Writer, kind Kind, panels []Panel) error {
	plots := make([][]*plot.Plot, len(panels))
	top := 0.0
	for i, panel := range panels {
		p, err := panel.plot(i == 0)
		if err != nil {
			return err
		}
		plots[i] = []*plot.Plot{p}
		top = max(top, p.Y.Max)
	}
	for _, row := range plots {
		row[0].Y.Max = top
	}
	plots[len(plots)-1][0].X.Label.Text = "time (UTC)"
	return writePlots(w, kind, panels[0].Title, plots)
}

// writePlots draws plots below one another.
func writePlots(w io.Writer, kind Kind, title string, plots [][]*plot.Plot) error {
	height := max(minHeight, vg.Length(len(plots))*panelHeight)
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if kind == PNG {
		canvas = vgimg.PngCanvas{Canvas: vgimg.New(width, height)}
	} else {
		canvas = vgsvg.New(width, height)
	}
	tiles := draw.Tiles{
		Rows: len(plots), Cols: 1, PadY: margin,
		PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: legendWidth + margin,
	}
	page := draw.New(canvas)
	if kind == PNG {
		page.SetColor(color.White)
		page.Fill(page.Path())
	}
	for i, row := range plot.Align(plots, tiles, page) {
		plots[i][0].Draw(row[0])
	}
	if kind == PNG {
		_, err := canvas.WriteTo(w)
		return err
	}
	return writeSVG(w, canvas, title)
}

// plot draws the demand in the color of rejected tokens, and the admitted tokens over it. What stays
// visible of the demand was rejected.
func (p *Panel) plot(legend bool) (*plot.Plot, error) {
	rejected, err := curve(p.points(p.Demand), rejectedColor, nil)
	if err != nil {
		return nil, err
	}
	admitted, err := curve(p.points(p.Admitted), admittedColor, nil)
	if err != nil {
		return nil, err
	}
	demand, err := curve(p.points(p.Demand), nil, color.Gray{Y: 0x30})
	if err != nil {
		return nil, err
	}
	out := newPlot(p.Title, cmp.Or(p.unit, "tokens/s"))
	out.Add(rejected, admitted, demand)
	out.Y.Min, out.Y.Max = 0, max(out.Y.Max*1.05, 1e-9)
	if legend {
		addLegend(out)
		names := p.names
		if names == nil {
			names = []string{"demand", "rejected", "admitted"}
		}
		out.Legend.Add(names[0], demand)
		out.Legend.Add(names[1], rejected)
		out.Legend.Add(names[2], admitted)
	}
	return out, nil
}

// newPlot returns an empty plot with a grid, over the time since 1970.
func newPlot(title, unit string) *plot.Plot {
	out := plot.New()
	out.BackgroundColor = nil
	out.Title.Text, out.Title.Padding = title, 6
	out.Y.Label.Text = unit
	out.X.Tick.Marker, out.Y.Tick.Marker = timeTicks{}, rateTicks{}
	for _, style := range []*draw.TextStyle{
		&out.Title.TextStyle, &out.X.Label.TextStyle, &out.Y.Label.TextStyle, &out.Legend.TextStyle,
		&out.X.Tick.Label, &out.Y.Tick.Label,
	} {
		style.Font.Size, style.Font.Variant = 11, "Sans"
	}
	out.X.Tick.Label.Font.Size, out.Y.Tick.Label.Font.Size = 9, 9
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{Y: 0xe0}, color.Gray{Y: 0xe0}
	out.Add(grid)
	out.X.Padding, out.Y.Padding = 0, 0
	return out
}

// addLegend puts the legend of a plot to its right.
func addLegend(p *plot.Plot) {
	p.Legend.Top, p.Legend.XOffs, p.Legend.Padding = true, legendWidth, 3
}

// curve returns a line, or the area below it if fill is not nil.
func curve(points plotter.XYs, fill, line color.Color) (*plotter.Line, error) {
	c, err := plotter.NewLine(points)
	if err != nil {
		return nil, err
	}
	c.FillColor = fill
	c.Color, c.Width = line, 0
	if line != nil {
		c.Width = 0.75
	}
	return c, nil
}

// points returns the corners of the steps, in tokens per second over seconds since 1970.
func (p *Panel) points(tokens []float64) plotter.XYs {
	var points plotter.XYs
	start, step := float64(p.Start.UnixMicro())/1e6, p.Step.Seconds()
	for i, n := range tokens {
		right := plotter.XY{X: start + float64(i+1)*step, Y: n / step}
		if last := len(points) - 1; last >= 0 && points[last].Y == right.Y {
			points[last] = right
			continue
		}
		points = append(points, plotter.XY{X: right.X - step, Y: right.Y}, right)
	}
	return points
}
