package docs_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "compute the tables of capacity.md again")

// TestCapacity_TablesFollowConstants computes the tables of the document from its constants and
// assumptions, and fails if they differ. With -update it writes the tables.
func TestCapacity_TablesFollowConstants(t *testing.T) {
	const path = "reference/capacity.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	document := string(text)
	for name, table := range computedTables(readModel(t, document)) {
		before, found, after := cutTable(t, document, name)
		if table = "\n" + table + "\n"; *update {
			document = before + table + after
			continue
		}
		assert.Equal(t, table, found, "the table %q differs from the constants; see -update", name)
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(document), 0o644))
	}
}

// TestCapacity_ModelAgreesWithMeasurement compares products of the model with what the benchmarks measure
// directly.
func TestCapacity_ModelAgreesWithMeasurement(t *testing.T) {
	text, err := os.ReadFile("reference/capacity.md")
	require.NoError(t, err)
	m := readModel(t, string(text))
	for _, c := range checks(m) {
		assert.InDelta(t, 1, c.modeled/c.measured, 0.7, c.name)
	}
}

// TestCapacity_ModelDependsOnEveryNumber changes each constant and assumption, and expects another
// table.
func TestCapacity_ModelDependsOnEveryNumber(t *testing.T) {
	text, err := os.ReadFile("reference/capacity.md")
	require.NoError(t, err)
	m := readModel(t, string(text))
	before := computedTables(m)
	for name, value := range m.numbers {
		m.numbers[name] = 3 * value
		assert.NotEqual(t, before, computedTables(m), "%s has no effect", name)
		m.numbers[name] = value
	}
}

func computedTables(m *model) map[string]string {
	return map[string]string{
		"sizes":         sizesTable(m),
		"chat":          assumptionsText(m),
		"a node":        modelTable(m, nodeRows()),
		"Redis":         modelTable(m, redisRows()),
		"a failed node": modelTable(m, failureRows()),
		"bounds":        boundsTable(m),
		"checks":        checksTable(m),
	}
}

// A model contains the constants and assumptions of the document by their names.
type model struct {
	t       *testing.T
	numbers map[string]float64
}

// numberRow is a row of the tables of constants and assumptions: a name, and a number with its unit.
var numberRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([0-9][0-9,.]*)( [^|]*)? \|`)

func readModel(t *testing.T, document string) *model {
	m := &model{t, map[string]float64{}}
	for _, name := range []string{"assumptions", "constants"} {
		_, table, _ := cutTable(t, document, name)
		for _, row := range numberRow.FindAllStringSubmatch(table, -1) {
			value, err := strconv.ParseFloat(strings.ReplaceAll(row[2], ",", ""), 64)
			require.NoError(t, err, row[0])
			require.NotContains(t, m.numbers, row[1])
			m.numbers[row[1]] = value
		}
		require.Len(t, numberRow.FindAllString(table, -1), strings.Count(table, "\n| ")-2, "rows of the table without a number")
	}
	return m
}

// number returns a constant or an assumption.
func (m *model) number(name string) float64 {
	value, ok := m.numbers[name]
	require.True(m.t, ok, "the document has no number %q", name)
	return value
}

func cutTable(t *testing.T, document, name string) (before, table, after string) {
	begin, end := "<!-- capacity, "+name+": begin -->\n", "<!-- capacity, "+name+": end -->\n"
	before, rest, ok := strings.Cut(document, begin)
	require.True(t, ok, "the document does not contain %s", begin)
	table, after, ok = strings.Cut(rest, end)
	require.True(t, ok, "the document does not contain %s", end)
	return before + begin, table, end + after
}

// A modelRow is a row of a computed table.
type modelRow struct {
	name    string
	formula string
	value   func(m *model, nodes float64) float64 // in bytes, cores, seconds, or bytes per second
	format  func(float64) string
}

func modelTable(m *model, rows []modelRow) string {
	var b strings.Builder
	b.WriteString("| | formula | 10,000 | 100,000 | 1 million | 10 million |\n")
	b.WriteString("| --- | --- | ---: | ---: | ---: | ---: |\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s | %s |", row.name, row.formula)
		for _, s := range clusterSizes() {
			sized, nodes := m.at(s)
			fmt.Fprintf(&b, " %s |", row.format(row.value(sized, nodes)))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// sumOf returns a function for the sum of some rows of a table.
func sumOf(table func() []modelRow, names ...string) func(m *model, nodes float64) float64 {
	return func(m *model, nodes float64) (total float64) {
		rows := table()
		for _, name := range names {
			i := slices.IndexFunc(rows, func(row modelRow) bool { return row.name == name })
			require.GreaterOrEqual(m.t, i, 0, "the table has no row %q", name)
			total += rows[i].value(m, nodes)
		}
		return total
	}
}

// plain formats a number with two significant digits, and thousands with commas.
func plain(v float64) string {
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return "–"
	case v == 0:
		return "0"
	case v < 0.001:
		return "< 0.001"
	}
	scale := math.Pow(10, math.Floor(math.Log10(v))-1)
	v = math.Round(v/scale) * scale
	if v < 10 {
		return strconv.FormatFloat(math.Round(v*10_000)/10_000, 'f', -1, 64)
	}
	return withCommas(strconv.FormatFloat(v, 'f', 0, 64))
}

// withCommas separates the thousands of a number of less than 1,000 with decimals, or without any.
func withCommas(digits string) string {
	if strings.Contains(digits, ".") {
		return digits
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// withUnits returns a function that formats a value with a unit: the first one for values of up to 1,000
// times that unit, the next one above.
func withUnits(unit string, factor float64, next string) func(float64) string {
	return func(v float64) string {
		v *= factor
		switch {
		case math.IsInf(v, 0) || math.IsNaN(v):
			return plain(v)
		case v >= 1000 && next != "":
			return plain(v/1000) + next
		default:
			return plain(v) + unit
		}
	}
}

var (
	cores              = withUnits(" cores", 1, "")
	megabytes          = withUnits(" MB", 1e-6, " GB")
	megabytesPerSecond = withUnits(" MB/s", 1e-6, " GB/s")
	perSecond          = withUnits("/s", 1, "")
	seconds            = withUnits(" s", 1, "")
)
