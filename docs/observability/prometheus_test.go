package observability_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A prometheus is a real one, which scrapes and knows the alerts.
type prometheus struct{ url string }

// program returns the path of a program of Prometheus. Where it is missing it skips the
// test, or fails it if it is required.
func program(t *testing.T, name string) string {
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("PENSTOCK_REQUIRE_PROMETHEUS") == "1" || os.Getenv("CI") == "true" {
		t.Fatalf("there is no %s in PATH; install Prometheus: PENSTOCK_REQUIRE_PROMETHEUS=1 or CI=true requires it", name)
	}
	t.Skipf("there is no %s in PATH; install Prometheus to test the dashboard and the alerts", name)
	return ""
}

const config = `
global: {scrape_interval: 500ms, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: chat
    static_configs: [{targets: [%s]}]
`

// startPrometheus scrapes the targets, each a host:port, until the test ends.
func startPrometheus(t *testing.T, targets ...string) prometheus {
	path := program(t, "prometheus")
	dir := t.TempDir()
	alerts, err := filepath.Abs("alerts.yml")
	require.NoError(t, err)
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, config, alerts, `"`+strings.Join(targets, `", "`)+`"`), 0o600))
	for range 10 {
		addr := fmt.Sprint("127.0.0.1:", 10_000+rand.IntN(20_000))
		cmd := exec.Command(path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, addr), "--web.listen-address="+addr)
		require.NoError(t, cmd.Start())
		exited := make(chan struct{})
		go func() { defer close(exited); _ = cmd.Wait() }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-exited })
		if p := (prometheus{"http://" + addr}); p.comesUp(exited) {
			return p
		}
	}
	t.Fatal("prometheus does not start")
	return prometheus{}
}

func (p prometheus) comesUp(exited <-chan struct{}) bool {
	for range 600 {
		if resp, err := http.Get(p.url + "/-/ready"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-exited: // the port was taken
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false
}

// get asks the API for the data at path.
func (p prometheus) get(t require.TestingT, path string, params url.Values, data any) {
	resp, err := http.Get(p.url + "/api/v1/" + path + "?" + params.Encode())
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // only read from
	answer := struct {
		Error string
		Data  any
	}{Data: data}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	require.Empty(t, answer.Error, "%v", params)
}

// values returns what a query finds.
func (p prometheus) values(t require.TestingT, query string) (values []float64) {
	var found struct {
		Result []struct{ Value [2]json.RawMessage } // time and value
	}
	p.get(t, "query", url.Values{"query": {query}}, &found)
	for _, one := range found.Result {
		var text string
		require.NoError(t, json.Unmarshal(one.Value[1], &text))
		value, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		values = append(values, value)
	}
	return values
}

// An alert is a rule as Prometheus has understood it.
type alert struct{ Name, Query, Health, LastError string }

func (p prometheus) alerts(t *testing.T) []alert {
	var known struct{ Groups []struct{ Rules []alert } }
	p.get(t, "rules", nil, &known)
	require.Len(t, known.Groups, 1)
	return known.Groups[0].Rules
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool := program(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}
}
