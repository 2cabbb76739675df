package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/cmd/penstock/internal/chart"
)

func panel(title string, step time.Duration) chart.Panel {
	return chart.Panel{
		Title: title, Start: time.Date(2026, 9, 1, 18, 0, 0, 0, time.UTC), Step: step,
		Demand: []float64{1, 5, 5, 0, 2}, Admitted: []float64{1, 3, 3, 0, 2},
	}
}

func TestWrite_SizeAndColors(t *testing.T) {
	for panels, height := range map[int]int{1: 600, 2: 600, 5: 1500} {
		var out bytes.Buffer
		require.NoError(t, chart.Write(&out, chart.PNG, someOf(panels)))
		img, err := png.Decode(&out)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("(0,0)-(1200,%d)", height), img.Bounds().String())
		found := map[color.Color]int{}
		for y := range height {
			for x := range 1200 {
				found[color.NRGBAModel.Convert(img.At(x, y))]++
			}
		}
		// In each panel, 9 of 13 tokens were admitted and 4 rejected. The line covers a few pixels.
		assert.InDelta(t, 9.0/4, float64(found[color.NRGBA{0x5b, 0x9b, 0xc8, 0xff}])/float64(found[color.NRGBA{0xe4, 0x7a, 0x6c, 0xff}]), 0.2)
	}
}

func someOf(n int) []chart.Panel {
	var panels []chart.Panel
	for i := range n {
		panels = append(panels, panel(fmt.Sprint("policy ", i), time.Minute))
	}
	return panels
}

func TestWrite_Labels(t *testing.T) {
	for step, want := range map[time.Duration][]string{
		time.Millisecond:    {"18:00:00.000", "1 Sep 2026", "18:00:00.005"},
		10 * time.Second:    {"18:00:00", "18:00:05", "18:00:50"},
		10 * time.Minute:    {"18:00", "18:45", "18:50"},
		2 * time.Hour:       {"18:00", "1 Sep 2026", "00:00", "2 Sep 2026"},
		28 * 24 * time.Hour: {"14 Sep 2026", "18 Jan 2027"},
	} {
		texts := textsOf(t, panel("chat: 10/s <burst> 20", step))
		assert.Subset(t, texts, append(want, "chat: 10/s <burst> 20", "demand", "admitted", "rejected", "tokens/s", "time (UTC)"), step)
	}
}

// An SVG image has no colors but those of its style sheet, which suit light and dark pages.
func TestWrite_SVGFollowsThePage(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, chart.Write(&out, chart.SVG, []chart.Panel{panel("10/s <burst> 20", time.Minute)}))
	text := out.String()
	assert.Contains(t, text, "<title>10/s &lt;burst&gt; 20</title>")
	assert.Contains(t, text, "@media(prefers-color-scheme:dark){:root{background:#15191e}")
	assert.NotContains(t, text, "style=")
	assert.NotContains(t, strings.ToUpper(text), "#FFFFFF")
}

// A step that requests cover in part has the rate of that part, so that a constant demand is one line.
func TestWrite_PartlyCoveredStepsAreNoDrop(t *testing.T) {
	start := time.Date(2026, 9, 1, 18, 0, 0, 0, time.UTC)
	constant := chart.Panel{Start: start, Step: time.Minute, Demand: []float64{60, 120, 40}, Admitted: []float64{60, 120, 40}}
	assert.Len(t, heights(t, constant), 3, "requests cover all steps")
	for name, test := range map[string]struct {
		first, last time.Duration // after and before the border of a step
		demand      []float64     // 2 tokens per second
	}{
		"halves":               {30 * time.Second, 40 * time.Second, []float64{60, 120, 40}},
		"less than a quarter":  {50 * time.Second, 55 * time.Second, []float64{20, 120, 10}},
		"one step, two halves": {15 * time.Second, 15 * time.Second, []float64{60}},
	} {
		p := constant
		p.Demand, p.Admitted = test.demand, test.demand
		p.First, p.Last = start.Add(test.first), start.Add(time.Duration(len(test.demand))*time.Minute-test.last)
		assert.Len(t, heights(t, p), 1, name)
	}
	single := constant
	single.Demand, single.Admitted, single.First, single.Last = []float64{1}, []float64{1}, start, start
	assert.Len(t, heights(t, single), 1, "one request")
}

var demandPath = regexp.MustCompile(`<path d="([^"]+)" class="demand"`)

// heights returns the different heights of the demand's line.
func heights(t *testing.T, p chart.Panel) map[string]bool {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, chart.Write(&out, chart.SVG, []chart.Panel{p}))
	line := demandPath.FindStringSubmatch(out.String()) // the next one is in the legend
	require.NotNil(t, line)
	found := map[string]bool{}
	for point := range strings.SplitSeq(strings.TrimPrefix(line[1], "M"), "L") {
		_, y, _ := strings.Cut(point, ",")
		found[y] = true
	}
	return found
}

// The legend is to the right of the plot, whose width leaves room for it.
func TestWrite_LegendIsBesideThePlot(t *testing.T) {
	p := panel("candidates", time.Minute)
	const name = "all: 10/s burst 20 + quota 1000/day Europe/Berlin"
	p.Compared = []chart.Curve{{Name: name, Admitted: p.Admitted}, {Name: "5/m burst 7", Admitted: p.Demand}}
	var out bytes.Buffer
	require.NoError(t, chart.Write(&out, chart.SVG, []chart.Panel{panel("policy", time.Minute), p}))
	end := 0.0 // of the longest line of the grid
	for _, line := range regexp.MustCompile(`<path d="M[\d.]+,[\d.]+L([\d.]+),[\d.]+" class="grid"`).FindAllStringSubmatch(out.String(), -1) {
		x, err := strconv.ParseFloat(line[1], 64)
		require.NoError(t, err)
		end = max(end, x)
	}
	require.Positive(t, end)
	texts := regexp.MustCompile(`<text x="([\d.]+)"[^>]*>([^<]+)</text>`).FindAllStringSubmatch(out.String(), -1)
	begins := map[string]float64{}
	for _, text := range texts {
		begins[text[2]], _ = strconv.ParseFloat(text[1], 64)
	}
	for _, entry := range []string{"rejected", "admitted", name, "5/m burst 7"} {
		assert.Greater(t, begins[entry], end, entry)
	}
	assert.Less(t, begins[name], 900-4.5*float64(len(name)), "the longest name ends within the picture")
}

func TestWrite_EmptyTimeline(t *testing.T) {
	empty := panel("empty", time.Second)
	empty.Demand, empty.Admitted = []float64{0}, []float64{0}
	assert.Contains(t, textsOf(t, empty), "empty")
	assert.NotContains(t, textsOf(t, empty), "NaN")
}

// textsOf returns the texts of an SVG image, and fails if it is not valid XML.
func textsOf(t *testing.T, p chart.Panel) []string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, chart.Write(&out, chart.SVG, []chart.Panel{p}))
	var texts []string
	decoder := xml.NewDecoder(&out)
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		require.NoError(t, err)
		if text, ok := token.(xml.CharData); ok {
			texts = append(texts, strings.TrimSpace(string(text)))
		}
	}
}

func TestKindOf(t *testing.T) {
	for path, want := range map[string]chart.Kind{"a/b.svg": chart.SVG, "b.png": chart.PNG} {
		kind, err := chart.KindOf(path)
		require.NoError(t, err)
		assert.Equal(t, want, kind)
	}
	_, err := chart.KindOf("plot.pdf")
	assert.EqualError(t, err, `plot file "plot.pdf" must end in .svg or .png`)
}

func TestWriteLoad_DrawsRateAndLatency(t *testing.T) {
	l := chart.Load{
		Title: "10 connections", Step: time.Second, Due: []float64{100, 100, 100}, Answered: []float64{100, 40, 100},
		P50: []time.Duration{time.Millisecond, 500 * time.Millisecond, time.Millisecond},
		P99: []time.Duration{2 * time.Millisecond, 900 * time.Millisecond, 3 * time.Millisecond},
		Max: []time.Duration{3 * time.Millisecond, time.Second, 4 * time.Millisecond},
	}
	var out bytes.Buffer
	require.NoError(t, chart.WriteLoad(&out, chart.SVG, l))
	for _, want := range []string{"10 connections", "messages/s", "milliseconds", "due", "rejected or not answered", "answered", "p50", "p99", "maximum", "seconds after the warm-up"} {
		assert.Contains(t, out.String(), ">"+want+"<")
	}
	assert.NotContains(t, out.String(), "style=")
	require.NoError(t, chart.WriteLoad(io.Discard, chart.PNG, chart.Load{Step: time.Second}), "nothing was measured")
}
