package docs_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

// A prometheus is a running Prometheus server that has loaded the alerts.
type prometheus struct{ url string }

// program returns the path of a program of Prometheus. If it is not installed, program skips the
// test, or fails it where CI or PENSTOCK_REQUIRE_PROMETHEUS is set.
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
	alerts, err := filepath.Abs("observability/alerts.yml")
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
		if p := (prometheus{"http://" + addr}); p.waitReady(exited) {
			return p
		}
	}
	t.Fatal("prometheus does not start")
	return prometheus{}
}

// waitReady reports whether the server became ready before it exited.
func (p prometheus) waitReady(exited <-chan struct{}) bool {
	for range 600 {
		if resp, err := http.Get(p.url + "/-/ready"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-exited: // the port is in use
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false
}

// get reads the data at path of the HTTP API.
func (p prometheus) get(t require.TestingT, path string, params url.Values, data any) {
	resp, err := http.Get(p.url + "/api/v1/" + path + "?" + params.Encode())
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // only read from
	response := struct {
		Error string
		Data  any
	}{Data: data}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&response))
	require.Empty(t, response.Error, "%v", params)
}

func (p prometheus) values(t require.TestingT, query string) (values []float64) {
	var data struct {
		Result []struct{ Value [2]json.RawMessage } // time and value
	}
	p.get(t, "query", url.Values{"query": {query}}, &data)
	for _, one := range data.Result {
		var text string
		require.NoError(t, json.Unmarshal(one.Value[1], &text))
		value, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		values = append(values, value)
	}
	return values
}

// An alert is a rule as Prometheus has parsed it.
type alert struct{ Name, Query, Health, LastError string }

func (p prometheus) alerts(t *testing.T) []alert {
	var data struct{ Groups []struct{ Rules []alert } }
	p.get(t, "rules", nil, &data)
	require.Len(t, data.Groups, 1)
	return data.Groups[0].Rules
}

func TestAlerts_FireAsPromtoolExpects(t *testing.T) {
	promtool := program(t, "promtool")
	check := [][]string{{"check", "rules", "observability/alerts.yml"}}
	for _, args := range testscale.Pick(check, append(check, []string{"test", "rules", "observability/alerts_test.yml"})) {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}
}

// TestAlerts_HaveTests checks that promtool expects every alert to fire.
func TestAlerts_HaveTests(t *testing.T) {
	tests := read(t, "observability/alerts_test.yml")
	alerts := regexp.MustCompile(`alert: (\w+)\n`).FindAllStringSubmatch(read(t, "observability/alerts.yml"), -1)
	assert.Len(t, alerts, 18)
	for _, alert := range alerts {
		assert.Regexp(t, `alertname="`+alert[1]+`",alertstate="firing"|alertname: `+alert[1]+`\n`, tests)
	}
}
