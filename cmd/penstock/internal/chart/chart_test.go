package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"image/png"
	"io"
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

func TestPicturesHaveTheirSizeAndTheirColours(t *testing.T) {
	for panels, height := range map[int]int{1: 600, 2: 600, 5: 1500} {
		var out bytes.Buffer
		require.NoError(t, chart.Write(&out, chart.PNG, someOf(panels)))
		picture, err := png.Decode(&out)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("(0,0)-(1200,%d)", height), picture.Bounds().String())
		found := map[color.Color]int{}
		for y := range height {
			for x := range 1200 {
				found[color.NRGBAModel.Convert(picture.At(x, y))]++
			}
		}
		// Of 13 tokens of a panel 9 were admitted and 4 refused, but for the line.
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

func TestLabels(t *testing.T) {
	for step, want := range map[time.Duration][]string{
		time.Millisecond:    {"18:00:00.000", "1 Sep 2026", "18:00:00.005"},
		10 * time.Second:    {"18:00:00", "18:00:05", "18:00:50"},
		10 * time.Minute:    {"18:00", "18:45", "18:50"},
		2 * time.Hour:       {"18:00", "1 Sep 2026", "00:00", "2 Sep 2026"},
		28 * 24 * time.Hour: {"14 Sep 2026", "18 Jan 2027"},
	} {
		texts := textsOf(t, panel("chat: 10/s <burst> 20", step))
		assert.Subset(t, texts, append(want, "chat: 10/s <burst> 20", "demand", "admitted", "refused", "tokens a second", "time (UTC)"), step)
	}
}

func TestNothingToSeeIsDrawnToo(t *testing.T) {
	still := panel("still", time.Second)
	still.Demand, still.Admitted = []float64{0}, []float64{0}
	assert.Contains(t, textsOf(t, still), "still")
	assert.NotContains(t, textsOf(t, still), "NaN")
}

// textsOf returns the texts of a picture, which must be XML.
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

func TestKindsOfFiles(t *testing.T) {
	for path, want := range map[string]chart.Kind{"a/b.svg": chart.SVG, "b.png": chart.PNG} {
		kind, err := chart.KindOf(path)
		require.NoError(t, err)
		assert.Equal(t, want, kind)
	}
	_, err := chart.KindOf("plot.pdf")
	assert.EqualError(t, err, `a plot is an .svg or a .png file, not "plot.pdf"`)
}
