package clienttest_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/conformance"
	"github.com/penstock-go/penstock/internal/simnet"
	"github.com/penstock-go/penstock/internal/testscale"
)

func TestScenarios_GoClient(t *testing.T) {
	runGoScenarios(t, scenariosOf("Go", webSocket), false, byWebSocket)
}

func TestScenarios_GoClientCBOR(t *testing.T) {
	runGoScenarios(t, scenariosOf("Go", withCBOR), true, byWebSocket)
}

func TestScenarios_GoClientHTTPStream(t *testing.T) {
	runGoScenarios(t, scenariosOf("Go", httpStream), false, func(t *testing.T, base http.RoundTripper) *http.Client { return overHTTP(t, base, false) })
}

func TestScenarios_GoClientHTTPPoll(t *testing.T) {
	runGoScenarios(t, scenariosOf("Go", httpPoll), false, func(t *testing.T, base http.RoundTripper) *http.Client { return overHTTP(t, base, true) })
}

func byWebSocket(_ *testing.T, base http.RoundTripper) *http.Client {
	return &http.Client{Transport: base}
}

// runGoScenarios runs scenarios in virtual time.
func runGoScenarios(t *testing.T, scenarios []*conformance.Scenario, cbor bool, connect func(*testing.T, http.RoundTripper) *http.Client) {
	for _, s := range scenarios {
		t.Run(title(s), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				network := simnet.New(1, simnet.Links{Window: 1 << 20})
				base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return network.Dial(ctx, "client", "server")
				}}
				run(t, s, newGoDriver(connect(t, base)), conformance.Config{Listener: network.Listen("server"), URL: "ws://example.com/", CBOR: cbor, Scale: 1, Limit: time.Hour})
				base.CloseIdleConnections()
				time.Sleep(time.Minute) // until the server has given up connections over HTTP
			})
		})
	}
}

func title(s *conformance.Scenario) string { return fmt.Sprintf("%02d %s", s.Number, s.Name) }

func run(t *testing.T, s *conformance.Scenario, d driver, c conformance.Config) {
	t.Helper()
	if failure := conformance.Run(s, d, c); failure != nil {
		t.Errorf("%v\n%s", failure, strings.Join(failure.Transcript, "\n"))
	}
}

func TestScenarios_TypeScriptClient(t *testing.T) {
	runNodeScenarios(t, testscale.Sample(scenariosOf("TypeScript", webSocket), 15), false, nodeScale)
}

// The other formats and transports run some of the scenarios, and all of them in a soak: each scenario takes
// a process and real time.

func TestScenarios_TypeScriptClientCBOR(t *testing.T) {
	runNodeScenarios(t, testscale.SoakSample(scenariosOf("TypeScript", withCBOR), testscale.Pick(8, 10)), true, nodeScale)
}

func TestScenarios_TypeScriptClientHTTPStream(t *testing.T) {
	runNodeScenarios(t, testscale.SoakSample(scenariosOf("TypeScript", httpStream), testscale.Pick(3, 6)), false, nodeHTTPScale, "stream")
}

func TestScenarios_TypeScriptClientHTTPPoll(t *testing.T) {
	runNodeScenarios(t, testscale.SoakSample(scenariosOf("TypeScript", httpPoll), testscale.Pick(3, 6)), false, nodeHTTPScale, "poll")
}

func runNodeScenarios(t *testing.T, scenarios []*conformance.Scenario, cbor bool, scale int, mode ...string) {
	buildNode(t)
	for _, s := range scenarios {
		t.Run(title(s), func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			run(t, s, startNode(t, scale, mode...), conformance.Config{
				Listener: listener, URL: "ws://" + listener.Addr().String() + "/", CBOR: cbor, Scale: scale, Limit: 30 * time.Second,
			})
		})
	}
}

const documentPath = "../../../docs/client-scenarios.md"

var documentRow = regexp.MustCompile(`(?m)^\| (\d+) \| (.*) \| (.*) \| (.*) \|$`)

// The page and the tests have the same scenarios, and the page has the names of the tests.
func TestScenarios_AreThoseOfTheDocument(t *testing.T) {
	text, err := os.ReadFile(documentPath)
	require.NoError(t, err)
	listed := map[int]string{}
	for _, row := range documentRow.FindAllStringSubmatch(string(text), -1) {
		number, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		require.NotContains(t, listed, number, "the number occurs twice")
		listed[number] = row[4]
	}
	for _, s := range conformance.Scenarios() {
		assert.Equal(t, s.Name, listed[s.Number], "the scenario in the row of number %d", s.Number)
		delete(listed, s.Number)
	}
	for _, f := range faultCases {
		assert.Contains(t, slices.Collect(maps.Values(listed)), "faults: "+f.name)
	}
	for number, test := range listed {
		if name, ok := strings.CutPrefix(test, "browser: "); ok {
			assert.True(t, inTypeScriptTests(t, name), "number %d: no file in clients/ts/test has the test %q", number, name)
			continue
		}
		assert.True(t, slices.ContainsFunc(faultCases, func(f faultCase) bool { return "faults: "+f.name == test }), "number %d: %q", number, test)
	}
}

func inTypeScriptTests(t *testing.T, name string) bool {
	t.Helper()
	files, err := os.ReadDir("../../../clients/ts/test")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile("../../../clients/ts/test/" + file.Name())
		require.NoError(t, err)
		if strings.Contains(string(text), name+`"`) {
			return true
		}
	}
	return false
}
