package guides_test

import (
	"fmt"
	"strings"
)

// A color is that of light pages and that of dark ones. Text has a contrast of at least 4.5 with the pages
// of its scheme, and of 3 with those of the other one; see decision 72.
type color struct{ light, dark string }

// Blue, green and red are close to those of Okabe and Ito, which color-blind people can distinguish; shapes
// differ, too.
var (
	ink   = color{"#5f6872", "#8b949f"}
	blue  = color{"#0072b2", "#3d9bd9"}
	green = color{"#00795a", "#2fa37c"}
	red   = color{"#b3470b", "#dd7733"}
)

// A rule is a rule of a style sheet. Lengths are tenths of a pixel.
type rule struct {
	selector, fixed string
	fill, stroke    *color
}

// shapes are the rules of all pictures. Fills under text are translucent, so that they suit every page.
var shapes = []rule{
	{selector: ".good", fill: &green},
	{selector: ".bad", fill: &red},
	{selector: ".end", fixed: "text-anchor:end"},
	{selector: ".mid", fixed: "text-anchor:middle"},
	{selector: ".edge", fixed: "fill:none;stroke-width:15;stroke-linejoin:round", stroke: &blue},
	{selector: ".area", fixed: "fill-opacity:.12", fill: &blue},
	{selector: ".yes", fill: &blue},
	{selector: ".arrived", fixed: "fill:none;stroke-width:14", stroke: &blue},
	{selector: ".no", fixed: "fill:none;stroke-width:18", stroke: &red},
	{selector: ".span", fixed: "fill:none;stroke-width:14", stroke: &blue},
	{selector: ".grid", fixed: "fill:none;stroke-width:10;stroke-opacity:.25", stroke: &ink},
	{selector: ".axis,.mark,.flow", fixed: "fill:none;stroke-width:12", stroke: &ink},
	{selector: ".most,.away", fixed: "fill:none;stroke-width:10;stroke-dasharray:40 30", stroke: &ink},
	{selector: ".found", fixed: "fill:none;stroke-width:15", stroke: &green},
	{selector: ".refused", fixed: "fill:none;stroke-width:14;stroke-dasharray:40 30", stroke: &red},
	{selector: ".head", fixed: "stroke-dasharray:none"},
	{selector: ".penalty", fixed: "fill-opacity:.12", fill: &red},
	{selector: ".plan", fixed: "fill-opacity:.1", fill: &ink},
	{selector: ".box", fixed: "fill-opacity:.1;stroke-width:12", fill: &ink, stroke: &ink},
	{selector: ".limit", fixed: "fill-opacity:.12;stroke-width:20", fill: &blue, stroke: &blue},
}

// A fontSizes has the sizes of texts, in tenths of a pixel.
type fontSizes struct{ title, text, note int }

// style returns the style sheet of a picture. The colors of dark pages follow those of light ones, for renderers
// without media queries.
func style(sizes fontSizes) string {
	rules := append([]rule{
		{selector: "text", fixed: fmt.Sprintf(`font:%dpx -apple-system,"Segoe UI","Helvetica Neue",Arial,sans-serif`, sizes.text), fill: &ink},
		{selector: ".title", fixed: fmt.Sprintf("font-size:%dpx;font-weight:600", sizes.title)},
		{selector: ".strong", fixed: "font-weight:600"},
		{selector: ".note,.tick", fixed: fmt.Sprintf("font-size:%dpx", sizes.note)},
		{selector: ".code", fixed: fmt.Sprintf("font:600 %dpx ui-monospace,SFMono-Regular,Menlo,Consolas,monospace", sizes.note)},
	}, shapes...)
	var light, dark strings.Builder
	for _, r := range rules {
		properties := []string{}
		if r.fixed != "" {
			properties = append(properties, r.fixed)
		}
		var changed []string
		for _, p := range []struct {
			name  string
			color *color
		}{{"fill", r.fill}, {"stroke", r.stroke}} {
			if p.color != nil {
				properties = append(properties, p.name+":"+p.color.light)
				changed = append(changed, p.name+":"+p.color.dark)
			}
		}
		fmt.Fprintf(&light, "%s{%s}\n", r.selector, strings.Join(properties, ";"))
		if len(changed) > 0 {
			fmt.Fprintf(&dark, "%s{%s}\n", r.selector, strings.Join(changed, ";"))
		}
	}
	return light.String() + "@media(prefers-color-scheme:dark){\n" + dark.String() + "}"
}
