// Command chart draws what comes as JSON on standard input: each chart twice, as <file>.svg for light pages and <file>-dark.svg for
// dark ones, in the folder that is its argument.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is as bench/page.go describes it.
type chart struct {
	File, Title, Unit, Note string
	Lines                   bool
	Names                   []string
	Series                  []struct {
		Name   string
		Values []float64
	}
}

// theme is the colours of a page.
type theme struct {
	end          string // of the file's name
	ink, line    color.Color
	ours, others []color.Color
}

func rgb(hex uint32) color.Color {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 255}
}

func all(hexes ...uint32) (colours []color.Color) {
	for _, hex := range hexes {
		colours = append(colours, rgb(hex))
	}
	return colours
}

// The colours differ in lightness, too, so that they can be told apart without hue.
var themes = []theme{
	{"", rgb(0x1f2328), rgb(0xd1d9e0), all(0x0969da, 0x54aeff), all(0xbc4c00, 0x1a7f37, 0x8250df, 0x9a6700, 0xcf222e, 0x1b7c83, 0x59636e, 0xbf3989, 0x4d2d00, 0x6e7781)},
	{"-dark", rgb(0xf0f6fc), rgb(0x3d444d), all(0x58a6ff, 0x1f6feb), all(0xffa657, 0x3fb950, 0xd2a8ff, 0xe3b341, 0xff7b72, 0x76e3ea, 0x9198a1, 0xff9bce, 0xffdfb6, 0xb1bac4)},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("one argument: the folder")
	}
	var charts []chart
	if err := json.NewDecoder(os.Stdin).Decode(&charts); err != nil {
		return err
	}
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	for _, c := range charts {
		for _, t := range themes {
			p, err := c.plot(t)
			if err != nil {
				return fmt.Errorf("%s: %w", c.File, err)
			}
			height := 4.2 * vg.Inch
			if !c.Lines {
				height = vg.Length(0.9+0.15*float64(len(c.Names)*(len(c.Series)+1))) * vg.Inch
			}
			if err := save(p, height, filepath.Join(os.Args[1], c.File+t.end+".svg")); err != nil {
				return err
			}
		}
	}
	return nil
}

// save writes a chart. The font that its texts are measured with is free and like Arial, which is there where that is not.
func save(p *plot.Plot, height vg.Length, file string) error {
	const margin = 8
	picture := vgsvg.New(8*vg.Inch, height)
	p.Draw(draw.Crop(draw.New(picture), margin, -2*margin, margin, -margin))
	var out bytes.Buffer
	if _, err := picture.WriteTo(&out); err != nil {
		return err
	}
	const family = "font-family:Liberation Sans"
	return os.WriteFile(file, bytes.ReplaceAll(out.Bytes(), []byte(family), []byte(family+",Arial,Helvetica,sans-serif")), 0o644)
}

func (c chart) plot(t theme) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = nil // the page shows through: a colour that is transparent is written as no colour
	p.Title.Text, p.Title.TextStyle.Color, p.Title.Padding = c.Title, t.ink, vg.Points(8)
	p.Legend.TextStyle.Color, p.Legend.TextStyle.Font.Size, p.Legend.Padding = t.ink, vg.Points(10), vg.Points(2)
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = vg.Points(9), vg.Points(9)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Tick.Label.Font.Size = vg.Points(10)
		axis.Color, axis.Label.TextStyle.Color, axis.Tick.Color, axis.Tick.Label.Color = t.line, t.ink, t.line, t.ink
	}
	if c.Lines {
		return p, c.lines(p, t)
	}
	return p, c.bars(p, t)
}

// bars lie, the first name on top, with their values beside them.
func (c chart) bars(p *plot.Plot, t theme) error {
	const thick = 9.0
	names := make([]string, len(c.Names))
	for i, name := range c.Names {
		names[len(names)-1-i] = name + "\u00a0\u00a0\u00a0" // room for a font that is wider than the one it is measured with
	}
	p.NominalY(names...)
	p.X.Label.Text, p.X.Min = c.Unit+"\n"+c.Note, 0
	for s, one := range c.Series {
		values := make(plotter.Values, len(names))
		labels := plotter.XYLabels{XYs: make(plotter.XYs, len(names)), Labels: make([]string, len(names))}
		for i, v := range one.Values {
			at := len(names) - 1 - i
			values[at] = v
			labels.XYs[at] = plotter.XY{X: v, Y: float64(at)}
			labels.Labels[at] = " " + digits(v)
			p.X.Max = max(p.X.Max, v*1.12)
		}
		bars, err := plotter.NewBarChart(values, vg.Points(thick))
		if err != nil {
			return err
		}
		offset := vg.Points(thick * (float64(len(c.Series)-1)/2 - float64(s)))
		bars.Horizontal, bars.Color, bars.Offset, bars.LineStyle.Width = true, t.ours[s%len(t.ours)], offset, 0
		beside, err := plotter.NewLabels(labels)
		if err != nil {
			return err
		}
		for i := range beside.TextStyle {
			beside.TextStyle[i].Color, beside.TextStyle[i].YAlign = t.ink, text.YCenter
			beside.TextStyle[i].Font.Size = vg.Points(8)
		}
		beside.Offset.Y = offset
		p.Add(bars, beside)
		if one.Name != "" {
			p.Legend.Add(one.Name, bars)
		}
	}
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, 4.7*vg.Inch // as lines have it
	return nil
}

// lines go over the names, with a logarithmic axis. The first is the thickest; each has a mark of its own.
func (c chart) lines(p *plot.Plot, t theme) error {
	p.NominalX(c.Names...)
	p.X.Label.Text = c.Note
	p.Y.Label.Text, p.Y.Scale, p.Y.Tick.Marker = c.Unit, plot.LogScale{}, powers{}
	p.Y.Min, p.Y.Max = math.Inf(1), 1
	p.Add(&plotter.Grid{Horizontal: draw.LineStyle{Color: t.line, Width: vg.Points(0.5)}})
	marks := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}
	for s, one := range c.Series {
		var points plotter.XYs
		for i, v := range one.Values {
			if v > 0 {
				points = append(points, plotter.XY{X: float64(i), Y: v})
				p.Y.Min, p.Y.Max = min(p.Y.Min, v), max(p.Y.Max, v)
			}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
		colour, width := t.ours[0], 2.5
		if s > 0 {
			colour, width = t.others[(s-1)%len(t.others)], 1.2
		}
		line.Color, line.Width = colour, vg.Points(width)
		dots.Color, dots.Shape, dots.Radius = colour, marks[s%len(marks)], vg.Points(3)
		p.Add(line, dots)
		p.Legend.Add(one.Name, line, dots)
	}
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))), math.Pow(10, math.Ceil(math.Log10(p.Y.Max)))
	p.X.Max = float64(len(c.Names)) + 0.6 // room for the legend, whose marks are left of the names: these may be wider than measured
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, 5*vg.Inch
	return nil
}

// powers marks 1, 10, 100 and so on.
type powers struct{}

func (powers) Ticks(from, to float64) (ticks []plot.Tick) {
	for v := from; v <= to*1.01; v *= 10 {
		ticks = append(ticks, plot.Tick{Value: v, Label: digits(v)})
	}
	return ticks
}

func digits(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f,%03.0f", math.Floor(v/1000), math.Mod(v, 1000))
	case v >= 100 || v == math.Floor(v):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
