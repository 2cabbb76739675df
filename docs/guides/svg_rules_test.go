package guides_test

import (
	"encoding/xml"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The backgrounds of pages: white, and those of GitHub and VitePress in dark mode.
var (
	lightPages = []string{"#ffffff"}
	darkPages  = []string{"#0d1117", "#1b1b1f"}
)

// Contrasts that WCAG 2 demands of small text and of large text.
const (
	contrastOfText  = 4.5
	contrastAtLeast = 3 // where the browser prefers another scheme than the page has
)

// Lengths in pixels.
const (
	leastFont  = 11
	phoneWidth = 340 // of a picture on a phone
)

// TestSVG_SuitsLightAndDarkPages checks every picture of the documents: its names, its size, its fonts, and its
// colors on all pages.
func TestSVG_SuitsLightAndDarkPages(t *testing.T) {
	found := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".svg" {
			return err
		}
		found++
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Less(t, len(text), 30_000)
			assert.Empty(t, problemsOfSVG(t, string(text)))
		})
		return nil
	}))
	assert.GreaterOrEqual(t, found, 20)
}

// TestSVG_ProblemsAreFound changes a picture in ways that the rules forbid.
func TestSVG_ProblemsAreFound(t *testing.T) {
	file, err := os.ReadFile("../images/pipeline.svg")
	require.NoError(t, err)
	for want, change := range map[string][2]string{
		"no title":              {"<title ", "<other "},
		"an opaque rectangle":   {"</style>", `</style><rect width="4400" height="5000" fill="#fff"/>`},
		"an external reference": {"</style>", `</style><image href="https://example.com/a.png"/>`},
		"an element script":     {"</style>", "</style><script>1</script>"},
		"a font of 6.2 pixels":  {"font-size:143px", "font-size:80px"},
		"contrast 1.61 of #cccccc on [1.00 1.00 1.00]": {"fill:#5f6872", "fill:#cccccc"},
		"contrast 1.94 of #444444 on [0.05 0.07 0.09]": {"fill:#8b949f", "fill:#444444"},
		"on #1b1b1f of the other scheme":               {"fill:#5f6872", "fill:#222222"},
		"a white fill":                                 {"</style>", `</style><path style="fill:#FFFFFF" d="M0,0H900V450H0Z"/>`},
		"no colors for dark pages":                     {"@media(prefers-color-scheme:dark)", "@media(print)"},
		"the color of a text is not known":             {"text{font:145px -apple-system", "p{font:145px -apple-system"},
	} {
		assert.Contains(t, string(file), change[0])
		changed := strings.Replace(string(file), change[0], change[1], 1)
		assert.Contains(t, strings.Join(problemsOfSVG(t, changed), "\n"), want)
	}
}

// A sheet is a style sheet: the properties of a selector, in its order.
type sheet []struct {
	selector   string
	properties map[string]string
}

// value returns a property of an element, or "". Of several rules, the last one applies: those of classes follow
// those of elements.
func (s sheet) value(name, class, property string) (value string) {
	for _, rule := range s {
		for selector := range strings.SplitSeq(rule.selector, ",") {
			matches := selector == name || slices.Contains(strings.Fields(class), strings.TrimPrefix(selector, "."))
			if v, ok := rule.properties[property]; ok && matches {
				value = v
			}
		}
	}
	return value
}

var (
	styleSheet = regexp.MustCompile(`(?s)<style>(.*)</style>`)
	darkPart   = regexp.MustCompile(`(?s)@media\(prefers-color-scheme:dark\)\{(.*?\})\s*\}`)
	cssRule    = regexp.MustCompile(`([^{}]+)\{([^{}]*)\}`)
	whiteFill  = regexp.MustCompile(`(?i)fill(:|=")\s*(#fff\b|#ffffff|white)`)
	fontSize   = regexp.MustCompile(`\b(\d+)px`)
)

func parseSheet(css string) (rules sheet) {
	for _, match := range cssRule.FindAllStringSubmatch(css, -1) {
		properties := map[string]string{}
		for property := range strings.SplitSeq(match[2], ";") {
			name, value, _ := strings.Cut(property, ":")
			properties[strings.TrimSpace(name)] = strings.TrimSpace(value)
			if name == "font" {
				properties["font-size"] = fontSize.FindString(value)
			}
		}
		rules = append(rules, struct {
			selector   string
			properties map[string]string
		}{strings.TrimSpace(match[1]), properties})
	}
	return rules
}

// problemsOfSVG returns what a picture should not have.
func problemsOfSVG(t *testing.T, text string) (problems []string) {
	found := func(format string, args ...any) {
		if problem := fmt.Sprintf(format, args...); !slices.Contains(problems, problem) {
			problems = append(problems, problem)
		}
	}
	css := styleSheet.FindStringSubmatch(text)
	require.NotNil(t, css)
	dark := darkPart.FindStringSubmatch(css[1])
	if dark == nil {
		found("no colors for dark pages")
		return problems
	}
	light := parseSheet(strings.Replace(css[1], dark[0], "", 1))
	both := append(slices.Clip(light), parseSheet(dark[1])...)
	if !strings.Contains(text, "<title") {
		found("no title")
	}
	if whiteFill.MatchString(text) {
		found("a white fill")
	}
	if strings.Contains(css[1], "url(") || strings.Contains(css[1], "@import") {
		found("an external reference in the style sheet")
	}
	decoder, scale := xml.NewDecoder(strings.NewReader(text)), 1.0
	for {
		token, err := decoder.Token()
		if err != nil {
			return problems
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attributes := map[string]string{}
		for _, a := range element.Attr {
			attributes[a.Name.Local] = a.Value
		}
		switch element.Name.Local {
		case "svg":
			scale = scaleOf(t, attributes)
		case "title", "desc", "style", "g", "path", "circle":
		case "rect":
			if opacity := light.value("rect", attributes["class"], "fill-opacity"); opacity == "" {
				found("an opaque rectangle")
			}
		case "text":
			size, _ := strconv.ParseFloat(strings.TrimSuffix(light.value("text", attributes["class"], "font-size"), "px"), 64)
			if size *= scale; size < leastFont {
				found("a font of %.1f pixels", size)
			}
			for _, problem := range contrastProblems(light, both, attributes["class"]) {
				found("%s", problem)
			}
		default:
			found("an element %s", element.Name.Local)
		}
		for name, value := range attributes {
			if name == "href" || name == "style" || strings.Contains(value, "url(") {
				found("an external reference, or a style, in %s", element.Name.Local)
			}
		}
	}
}

// scaleOf returns how many pixels a unit of the picture is: of a diagram on a phone, and of a timeline, which has
// no room there, in its own size.
func scaleOf(t *testing.T, svg map[string]string) float64 {
	width := svg["width"]
	unit := 1.0
	if number, ok := strings.CutSuffix(width, "pt"); ok {
		width, unit = number, 4.0/3
	}
	pixels, err := strconv.ParseFloat(width, 64)
	require.NoError(t, err)
	units, err := strconv.ParseFloat(strings.Fields(svg["viewBox"])[2], 64)
	require.NoError(t, err)
	pixels *= unit
	if pixels <= diagramWidth/px {
		pixels = min(pixels, phoneWidth)
	}
	return pixels / units
}

// contrastProblems compares the color of a text with the pages, and with all translucent fills on them.
func contrastProblems(light, both sheet, class string) (problems []string) {
	for _, scheme := range []struct {
		sheet      sheet
		own, other []string
	}{{light, lightPages, darkPages}, {both, darkPages, lightPages}} {
		color := scheme.sheet.value("text", class, "fill")
		if !strings.HasPrefix(color, "#") {
			return append(problems, "the color of a text is not known")
		}
		for _, page := range backgrounds(scheme.sheet, scheme.own) {
			if c := contrast(rgb(color), page); c < contrastOfText {
				problems = append(problems, fmt.Sprintf("contrast %.2f of %s on %.2f", c, color, page))
			}
		}
		for _, page := range scheme.other {
			if c := contrast(rgb(color), rgb(page)); c < contrastAtLeast {
				problems = append(problems, fmt.Sprintf("contrast %.2f of %s on %s of the other scheme", c, color, page))
			}
		}
	}
	return problems
}

// backgrounds returns the colors of pages, alone and under each translucent fill.
func backgrounds(s sheet, pages []string) (colors [][3]float64) {
	for _, page := range pages {
		colors = append(colors, rgb(page))
		for _, rule := range s {
			opacity, err := strconv.ParseFloat(rule.properties["fill-opacity"], 64)
			if err != nil {
				continue
			}
			fill, mixed := rgb(s.value("", strings.TrimPrefix(rule.selector, "."), "fill")), rgb(page)
			for i := range mixed {
				mixed[i] += (fill[i] - mixed[i]) * opacity
			}
			colors = append(colors, mixed)
		}
	}
	return colors
}

// rgb returns the parts of a color, from 0 to 1.
func rgb(color string) (parts [3]float64) {
	n, _ := strconv.ParseUint(strings.TrimPrefix(color, "#"), 16, 32)
	for i := range parts {
		parts[i] = float64(n>>(16-8*i)&0xff) / 255
	}
	return parts
}

// contrast returns the contrast ratio of WCAG 2.
func contrast(a, b [3]float64) float64 {
	one, two := luminance(a), luminance(b)
	return (max(one, two) + 0.05) / (min(one, two) + 0.05)
}

func luminance(color [3]float64) (sum float64) {
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		part := color[i] / 12.92
		if color[i] > 0.04045 {
			part = math.Pow((color[i]+0.055)/1.055, 2.4)
		}
		sum += weight * part
	}
	return sum
}
