package clienttest_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/conformance"
)

var updateClients = flag.Bool("clients.update", false, "write the table of clients/README.md")

// A suite is how a client runs the scenarios: in a function TestScenarios_<client>Client<suite>.
type suite string

const (
	webSocket  suite = ""
	withCBOR   suite = "CBOR"
	httpStream suite = "HTTPStream"
	httpPoll   suite = "HTTPPoll"
)

// A testedClient is a column of the table in clients/README.md.
type testedClient struct {
	name, page string          // its documentation, seen from clients
	without    map[suite][]int // its suites, with the numbers of the scenarios that it does not pass
}

// silentServers are the scenarios of a server that is silent while its HTTP handler is not. The pings of
// the Go and the Python client end at the handler.
var silentServers = []int{13, 14}

// testedClients has a line for each client. Its tests take their scenarios from scenariosOf.
func testedClients() []testedClient {
	return []testedClient{
		{"Go", "../docs/guides/clients.md", map[suite][]int{webSocket: nil, withCBOR: nil, httpStream: silentServers, httpPoll: silentServers}},
		{"TypeScript", "ts/README.md", map[suite][]int{webSocket: nil, withCBOR: nil, httpStream: nil, httpPoll: nil}},
		{"Python", "python/README.md", map[suite][]int{webSocket: nil, withCBOR: nil, httpStream: silentServers, httpPoll: silentServers}},
		{"Kotlin", "kotlin/README.md", map[suite][]int{webSocket: nil}},
	}
}

// scenariosOf returns the scenarios that a client passes in a suite.
func scenariosOf(client string, in suite) (scenarios []*conformance.Scenario) {
	for _, c := range testedClients() {
		without, runs := c.without[in]
		for _, s := range conformance.Scenarios() {
			if c.name == client && runs && !slices.Contains(without, s.Number) {
				scenarios = append(scenarios, s)
			}
		}
	}
	return scenarios
}

// levels returns what a client does in each level, as docs/writing-a-client.md has it.
func levels(t *testing.T) (names, texts []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/writing-a-client.md")
	require.NoError(t, err)
	for _, level := range conformance.Levels() {
		row := regexp.MustCompile("(?m)^\\| `" + level + "` \\| (.*) \\|$").FindSubmatch(page)
		require.NotNil(t, row, "docs/writing-a-client.md has no row of the level %s", level)
		names, texts = append(names, level), append(texts, string(row[1]))
	}
	return names, texts
}

// abilities returns the table: the number of scenarios that each client passes.
func abilities(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	row := func(label, all string, cell func(testedClient) string) {
		b.WriteString("| " + label + " | " + all + " |")
		for _, c := range testedClients() {
			b.WriteString(" " + cell(c) + " |")
		}
		b.WriteString("\n")
	}
	count := func(scenarios []*conformance.Scenario, level string) string {
		n := 0
		for _, s := range scenarios {
			if level == "" || s.Level == level {
				n++
			}
		}
		return cmp.Or(strings.TrimPrefix(fmt.Sprint(n), "0"), "–")
	}
	row("ability", "scenarios", func(c testedClient) string { return "[" + c.name + "](" + c.page + ")" })
	row("---", "---", func(testedClient) string { return "---" })
	names, texts := levels(t)
	for i, level := range names {
		row("`"+level+"`: "+texts[i], count(conformance.Scenarios(), level), func(c testedClient) string { return count(scenariosOf(c.name, webSocket), level) })
	}
	for _, other := range []struct {
		suite suite
		text  string
	}{
		{withCBOR, "payloads in CBOR"},
		{httpStream, "over HTTP where WebSocket is blocked, in a response that goes on"},
		{httpPoll, "the same, in a response for each batch"},
	} {
		row(other.text, count(conformance.Scenarios(), ""), func(c testedClient) string { return count(scenariosOf(c.name, other.suite), "") })
	}
	return b.String()
}

var abilitiesTable = regexp.MustCompile(`(?s)(<!-- scenarios: [^\n]*-->\n)(.*?)(<!-- scenarios: end -->)`)

// clients/README.md has what the tests of this package run.
func TestClientsPage_CountsTheScenariosThatTestsRun(t *testing.T) {
	const path = "../../../clients/README.md"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Regexp(t, abilitiesTable, string(page))
	want := abilitiesTable.ReplaceAllString(string(page), "${1}"+strings.ReplaceAll(abilities(t), "$", "$$")+"${3}")
	if *updateClients {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		return
	}
	assert.Equal(t, want, string(page), "run the test with -args -clients.update, and review the change")
}

var scenarioTest = regexp.MustCompile(`(?m)^func TestScenarios_(\w+?)Client(\w*)\(t \*testing\.T\) *\{([^}]*scenariosOf\("(\w+)", (\w+)\))?`)

// Each test of scenarios is that of a suite of the table, and takes its scenarios from there.
func TestClientsPage_HasEachSuite(t *testing.T) {
	constants := map[suite]string{webSocket: "webSocket", withCBOR: "withCBOR", httpStream: "httpStream", httpPoll: "httpPoll"}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, function := range scenarioTest.FindAllStringSubmatch(string(text), -1) {
			client, in := function[1], suite(function[2])
			found[client+string(in)] = true
			assert.Equal(t, []string{client, constants[in]}, function[4:6],
				"%s: TestScenarios_%sClient%s must run scenariosOf(%q, %s), and testedClients must have the client with that suite", file, client, in, client, constants[in])
			assert.NotEmpty(t, scenariosOf(client, in), "testedClients has no %s with the suite %q", client, in)
		}
	}
	for _, c := range testedClients() {
		for in := range c.without {
			assert.True(t, found[c.name+string(in)], "no file has the test TestScenarios_%sClient%s, which testedClients lists", c.name, in)
		}
	}
}
