package penstock_test

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A quote is a place where a document has measured figures. Each group of the text, a regular
// expression for the document with white space reduced to single spaces, has one of them.
type quote struct {
	document string
	text     string
	figures  []quoted
}

// A quoted figure returns what the document must say.
type quoted func(measured measurements) string

// measurements are the values in figures.json by name, and the names that quotes have used.
type measurements struct {
	t      *testing.T
	values map[string]float64
	used   map[string]bool
}

func (m measurements) get(name string) float64 {
	value, ok := m.values[name]
	assert.True(m.t, ok, "internal/benchmarks/figures.json has no %q", name)
	m.used[name] = true
	return value
}

// whole is a figure without decimals.
func whole(name string) quoted { return rounded(1, 0, name) }

// kilo is a figure in thousands, such as bytes in KB.
func kilo(decimals int, name string) quoted { return rounded(1000, decimals, name) }

// ratio is a figure with the number of decimals.
func ratio(decimals int, name string) quoted { return rounded(1, decimals, name) }

func rounded(unit float64, decimals int, name string) quoted {
	return func(m measurements) string { return format(m.get(name)/unit, decimals) }
}

// tens is a figure rounded to a multiple of ten.
func tens(name string) quoted {
	return func(m measurements) string { return format(math.Round(m.get(name)/10)*10, 0) }
}

func lowest(decimals int, names ...string) quoted {
	return extreme(slices.Min[[]float64], decimals, names)
}

func highest(decimals int, names ...string) quoted {
	return extreme(slices.Max[[]float64], decimals, names)
}

func extreme(pick func([]float64) float64, decimals int, names []string) quoted {
	return func(m measurements) string {
		var values []float64
		for _, name := range names {
			values = append(values, m.get(name))
		}
		return format(pick(values), decimals)
	}
}

// perGigabyte is how many connections fit in 10^9 bytes, in thousands: of what each takes resident,
// as much garbage as it has in the heap, and of the kernel.
func perGigabyte(resident, heap string, more ...string) quoted {
	return func(m measurements) string {
		bytes := m.get(resident) + m.get(heap) + m.get(kernelBytes)
		for _, name := range more {
			bytes += 2 * m.get(name)
		}
		return format(1e9/bytes/1000, 0) + ",000"
	}
}

// format writes a number as documents do, with commas between thousands.
func format(value float64, decimals int) string {
	text := strconv.FormatFloat(value, 'f', decimals, 64)
	head, fraction, _ := strings.Cut(text, ".")
	for at := len(head) - 3; at > 0; at -= 3 {
		head = head[:at] + "," + head[at:]
	}
	if fraction != "" {
		return head + "." + fraction
	}
	return head
}

// TestFigures_DocumentsQuoteWhatWasMeasured compares documents with the figures that the benchmarks have
// written. If it fails after `go run -C internal/benchmarks . -update`, change the documents.
func TestFigures_DocumentsQuoteWhatWasMeasured(t *testing.T) {
	measured := readMeasurements(t)
	texts := map[string]string{}
	for _, q := range quotes {
		if _, ok := texts[q.document]; !ok {
			texts[q.document] = readCollapsed(t, q.document)
		}
		found := regexp.MustCompile(q.text).FindAllStringSubmatch(texts[q.document], -1)
		if !assert.Len(t, found, 1, "%s must have this text once, or quotes_test.go must follow it: %s", q.document, q.text) {
			continue
		}
		if assert.Len(t, q.figures, len(found[0])-1, "figures of the quote %s", q.text) {
			for i, figure := range q.figures {
				assert.Equal(t, figure(measured), found[0][i+1], "%s: %s", q.document, found[0][0])
			}
		}
	}
	for name := range measured.values {
		assert.True(t, measured.used[name], "no document quotes %q of internal/benchmarks/figures.json; remove it", name)
	}
}

// TestFigures_SectionsWithABenchmarkAreQuoted fails for a section, or an item of README.md's features, that
// names the command of a benchmark and has no figure that a quote compares.
func TestFigures_SectionsWithABenchmarkAreQuoted(t *testing.T) {
	for _, document := range []string{"README.md", "SECURITY.md", "docs/guides/connections.md", "docs/guides/memory.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, section := range sections.Split(codeBlock.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(section, "run -C internal/benchmarks") {
				assert.True(t, slices.ContainsFunc(quotes, func(q quote) bool {
					return q.document == document && regexp.MustCompile(q.text).MatchString(collapse(section))
				}), "%s: add the figures to quotes_test.go:\n%s", document, section)
			}
		}
	}
}

var (
	sections  = regexp.MustCompile(`\n#+ |\n- `)
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
)

func readMeasurements(t *testing.T) measurements {
	text, err := os.ReadFile("internal/benchmarks/figures.json")
	require.NoError(t, err)
	var figures []struct {
		Name, Unit, Command, Date, Machine string
		Value                              float64
	}
	require.NoError(t, json.Unmarshal(text, &figures))
	m := measurements{t: t, values: map[string]float64{}, used: map[string]bool{}}
	for _, f := range figures {
		assert.NotContains(t, m.values, f.Name, "figures.json has the name twice")
		assert.True(t, strings.HasPrefix(f.Command, "go run -C internal/benchmarks . "), "%s: command %q", f.Name, f.Command)
		_, err := time.Parse(time.DateOnly, f.Date)
		assert.NoError(t, err, "%s: date", f.Name)
		assert.NotEmpty(t, f.Unit, "%s: unit", f.Name)
		assert.NotEmpty(t, f.Machine, "%s: machine", f.Name)
		m.values[f.Name] = f.Value
	}
	return m
}

func readCollapsed(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return collapse(string(text))
}

func collapse(text string) string { return strings.Join(strings.Fields(text), " ") }
