package docs_test

import (
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

// TestCapacity_ConstantsAreMeasured compares the constants with the results of the benchmarks. With
// -update it writes them.
func TestCapacity_ConstantsAreMeasured(t *testing.T) {
	text, err := os.ReadFile("reference/capacity.md")
	require.NoError(t, err)
	results, err := os.ReadFile("../internal/benchmarks/RESULTS.md")
	require.NoError(t, err)
	before, table, after := cutTable(t, string(text), "constants")
	missing := []string{"log of a user", "comparison of a topic", "room in a heartbeat"} // no suite measures them
	updated := numberRow.ReplaceAllStringFunc(table, func(row string) string {
		m := numberRow.FindStringSubmatch(row)
		source, ok := sources[m[1]]
		if !ok {
			assert.Contains(t, missing, m[1], "a constant without a source")
			return row
		}
		want := threeDigits(source(t, string(results)))
		if !*update {
			assert.Equal(t, want, m[2], "the constant %q differs from the benchmarks; see -update", m[1])
		}
		return "| " + m[1] + " | " + want + m[3] + " |"
	})
	for name := range sources {
		assert.Contains(t, table, "\n| "+name+" | ", "a source without a constant")
	}
	if *update && !t.Failed() {
		require.NoError(t, os.WriteFile("reference/capacity.md", []byte(before+updated+after), 0o644))
	}
}

// A source finds a figure in the results of the benchmarks.
type source func(t *testing.T, results string) float64

// sources has the source of each constant. The document says the same in words.
var sources = map[string]source{
	"connection, process":              cell("broadcast", "penstock", "RSS bytes"),
	"connection, kernel":               cell("broadcast", "penstock", "kernel bytes"),
	"subscription":                     line("presence", `room - one topic, heap: (\S+)`),
	"member, own node":                 line("presence", `member - room, heap: (\S+)`),
	"member, other node":               line("presence", `member - room, heap, other node: (\S+)`),
	"change on another node":           line("presence", `member - room, CPU µs, other node: (\S+)`),
	"session, process":                 line("sessions", `session - no session, heap: (\S+)`),
	"session record":                   cell("sessions", "session", "bytes on Redis"),
	"session write":                    cell("sessions", "session", "Redis CPU µs per write"),
	"session write, bytes":             cell("sessions", "session", "bytes to Redis"),
	"answer to a session write, bytes": cell("sessions", "session", "bytes from Redis"),
	"call and reply":                   cell("roundtrip", "penstock", "1000x1"),
	"delivery":                         cell("broadcast", "penstock", "CPU µs per delivery"),
	"ping and pong":                    cell("pings", "penstock", "CPU µs per ping"),
	"handshake":                        cell("handshake", "penstock", "open"),
	"handshake with TLS":               cell("handshake", "penstock", "open, TLS"),
	"close":                            cell("handshake", "penstock", "close"),
	"decision on Redis":                cellOf("redis", "CPU of the Redis server per decision, µs", "penstock", "128 callers"),
	"decision on Redis, node":          cellOf("redis", "CPU of the caller per decision, µs", "penstock", "16 callers"),
	"decision, bytes":                  cellOf("redis", "bytes to and from the Redis server per decision", "penstock", "16 callers"),
	"bucket":                           cell("redis", "penstock", "100,000 keys"),
	"publication, alone":               line("nodes", `Redis CPU µs, bursts of 1: (\S+) µs, and`),
	"copy for a node, alone":           line("nodes", `Redis CPU µs, bursts of 1: .* and (\S+) µs per receiving node`),
	"publication, in bursts":           line("nodes", `Redis CPU µs, bursts of 100: (\S+) µs, and`),
	"copy for a node, in bursts":       line("nodes", `Redis CPU µs, bursts of 100: .* and (\S+) µs per receiving node`),
	"copy, bytes":                      line("nodes", `bytes from Redis: .* and (\S+) bytes per receiving node`),
	"heartbeat, bytes":                 line("nodes", `kB from Redis: .* and (\S+) bytes per node and other node`),
	"publication received":             cell("nodes", "CPU µs of a receiving node, bursts of 1", "100 nodes"),
	"node, memory on Redis":            thousand(cell("nodes", "kB memory per node", "100 nodes")),
	"write of PostgreSQL":              postgres("\\| PostgreSQL, `Append` \\|.* (\\d+) µs \\|$"),
	"decisions of PostgreSQL":          postgres(`\| PostgreSQL \| \d+/s \| (\d+)/s \|`),
	"heartbeats of 10 nodes":           cell("nodes", "Redis CPU ms", "10 nodes"),
	"heartbeats of 100 nodes":          cell("nodes", "Redis CPU ms", "100 nodes"),
	"heartbeats of 100 nodes, bytes":   cell("nodes", "kB from Redis", "100 nodes"),
}

// postgres is a source in the tables of the adapter for PostgreSQL.
func postgres(pattern string) source {
	expression := regexp.MustCompile(`(?m)^` + pattern)
	return func(t *testing.T, _ string) float64 {
		text, err := os.ReadFile("../adapters/postgres/README.md")
		require.NoError(t, err)
		found := expression.FindSubmatch(text)
		require.NotNil(t, found, "the README of adapters/postgres has no line %s", pattern)
		return number(t, string(found[1]))
	}
}

// line is a source in a line below a table.
func line(suite, pattern string) source {
	expression := regexp.MustCompile(`(?m)^- ` + pattern)
	return func(t *testing.T, results string) float64 {
		found := expression.FindStringSubmatch(suiteOf(t, results, suite))
		require.NotNil(t, found, "the suite %s has no line %s", suite, pattern)
		return number(t, found[1])
	}
}

// cell is a source in the first table of a suite that has the column and the row.
func cell(suite, row, column string) source { return cellOf(suite, "", row, column) }

// cellOf is a source in the first table with a title, or any title if it is "", that has the column
// and the row.
func cellOf(suite, title, row, column string) source {
	return func(t *testing.T, results string) float64 {
		for table := range strings.SplitSeq(suiteOf(t, results, suite), "\n\n") {
			var header []string
			for text := range strings.Lines(table) {
				cells := strings.Split(strings.Trim(text, "| \n"), " | ")
				if header == nil {
					header = cells
				}
				i := slices.Index(header, column)
				if i > 0 && cells[0] == row && len(cells) == len(header) && strings.HasSuffix(header[0], title) {
					return number(t, cells[i])
				}
			}
		}
		require.Fail(t, "no such cell", "%s, %q: %s, %s", suite, title, row, column)
		return 0
	}
}

func thousand(s source) source {
	return func(t *testing.T, results string) float64 { return 1000 * s(t, results) }
}

func suiteOf(t *testing.T, results, suite string) string {
	_, section, ok := strings.Cut(results, "\n## "+suite+"\n")
	require.True(t, ok, "the benchmarks have no results of the suite %s", suite)
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

func number(t *testing.T, text string) float64 {
	value, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	require.Positive(t, value, "a constant that was lost in noise; measure it again")
	return value
}

// threeDigits formats a positive number with three significant digits, and thousands with commas.
func threeDigits(v float64) string {
	decimals := max(0, 2-int(math.Floor(math.Log10(v))))
	scale := math.Pow(10, math.Floor(math.Log10(v))-2)
	return withCommas(strconv.FormatFloat(math.Round(v/scale)*scale, 'f', decimals, 64))
}
