package production_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/penstock-go/penstock/internal/testscale"
)

// TestContainers_FilesAreValid checks compose.yaml as "docker compose config" does, and the Dockerfiles of the example and
// of the documents as "docker build --check" does.
func TestContainers_FilesAreValid(t *testing.T) {
	testscale.FullOnly(t, "TestContainers_DurationsFit")
	dir := t.TempDir()
	files := []string{filepath.Join(folder, "compose.yaml")}
	text, err := os.ReadFile("../../../docs/tutorial/9-production.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?ms)^```dockerfile.*?\n(.*?)^```$").FindSubmatch(text)
	require.NotNil(t, block)
	files = append(files, filepath.Join(dir, "tutorial.Dockerfile"))
	require.NoError(t, os.WriteFile(files[len(files)-1], block[1], 0o600))
	lint := filepath.Join(dir, "containerlint")
	build(t, "../../containerlint", lint)
	text, err = exec.CommandContext(t.Context(), lint, files...).CombinedOutput()
	assert.NoError(t, err, "%s", text)
}

// TestContainers_DurationsFit compares the times of main.go with those of HAProxy and of compose.yaml.
func TestContainers_DurationsFit(t *testing.T) {
	lameDuck := seconds(t, "main.go", `lameDuck\s+= (\d+) \* time\.Second`)
	shutdown := seconds(t, "main.go", `shutdownTimeout = (\d+) \* time\.Second`)
	grace := seconds(t, "compose.yaml", `stop_grace_period: (\d+)s`)
	interval, fall := seconds(t, "haproxy.cfg", `check inter (\d+)s`), seconds(t, "haproxy.cfg", `fall (\d+)`)
	assert.Greater(t, lameDuck, interval*fall, "HAProxy notices before the node rejects connections")
	assert.Greater(t, shutdown, lameDuck, "it includes the lame-duck phase")
	assert.Greater(t, grace, shutdown, "the process is not killed before it has ended")
}

// seconds returns the number in the only match of a pattern in a file.
func seconds(t *testing.T, file, pattern string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	require.NoError(t, err)
	found := regexp.MustCompile(pattern).FindAllSubmatch(text, -1)
	require.Len(t, found, 1, "%s in %s", pattern, file)
	n, err := strconv.Atoi(string(found[0][1]))
	require.NoError(t, err)
	return n
}

// A count is the message of the example.
type count struct {
	Type    string
	Payload struct {
		Value        int64
		Node         string
		Code         string
		RetryAfterMs int64
	}
}

func dial(t *testing.T, addr string) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws", nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

func receive(t *testing.T, ws *websocket.Conn) (m count) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, wsjson.Read(ctx, ws, &m))
	return m
}

func add(t *testing.T, ws *websocket.Conn) {
	t.Helper()
	require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ADD","payload":{}}`)))
}

// TestStack_CountsLimitsAndShutsDown runs two nodes behind HAProxy.
func TestStack_CountsLimitsAndShutsDown(t *testing.T) {
	testscale.FullOnly(t, "TestContainers_DurationsFit")
	t.Setenv("INSPECTOR_PASSWORD", "secret")
	s := newStack(t)
	redis := s.startRedis()
	first := s.startNode("node-1")
	s.startNode("node-2")
	s.startHAProxy()
	proxy := s.addrs["haproxy:8080"]
	assert.Equal(t, http.StatusOK, s.status("http://"+proxy+"/"), "the page")

	// HAProxy selects the node with fewer connections, so the two are on different ones.
	one, two := dial(t, proxy), dial(t, proxy)
	start := receive(t, one).Payload.Value
	assert.Equal(t, start, receive(t, two).Payload.Value)
	add(t, one)
	assert.Equal(t, start+1, receive(t, one).Payload.Value)
	assert.Equal(t, start+1, receive(t, two).Payload.Value, "over Redis")
	for _, name := range []string{"node-1", "node-2"} {
		assert.Contains(t, s.metrics(name), "penstock_connections_open 1\n", name)
		private := s.addrs[name+":9090"]
		assert.Equal(t, http.StatusOK, s.status("http://olga:secret@"+private+"/inspect/"))
		assert.Equal(t, http.StatusUnauthorized, s.status("http://olga:forged@"+private+"/inspect/"))
	}

	// Both connections are of one address, so of one bucket with ten tokens, of which nine are left.
	for range 20 {
		add(t, two)
	}
	refused := 0
	for range 20 {
		if m := receive(t, two); m.Type == "ERROR" {
			assert.Equal(t, "RESOURCE_EXHAUSTED", m.Payload.Code)
			assert.Positive(t, m.Payload.RetryAfterMs)
			refused++
		}
	}
	assert.Positive(t, refused)

	// While Redis does not answer, the page is served, and nothing is counted.
	redis.signal(t, syscall.SIGSTOP)
	assert.Equal(t, http.StatusOK, s.status("http://"+proxy+"/"), "the page")
	s.eventually("clients learn that", func() bool { // until there are tokens again, the node refuses without Redis
		add(t, two)
		return receive(t, two).Payload.Code == "UNAVAILABLE"
	})
	redis.signal(t, syscall.SIGCONT)
	s.eventually("both nodes count", func() bool {
		add(t, two)
		return receive(t, two).Type == "COUNT"
	})

	// During the shutdown, HAProxy chooses the other node.
	check := func(name string) error {
		return exec.CommandContext(t.Context(), s.program, "-check", "http://"+s.addrs[name+":8080"]+"/readyz").Run()
	}
	assert.NoError(t, check("node-1"))
	first.signal(t, syscall.SIGTERM)
	s.eventually("the health check fails", func() bool { return check("node-1") != nil })
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second) // stop_grace_period
	defer cancel()
	assert.Equal(t, 0, first.exitCode(ctx), "after a graceful shutdown")
	assert.NoError(t, check("node-2"))
	third := dial(t, proxy)
	assert.Equal(t, "COUNT", receive(t, third).Type)
}

func (s *stack) metrics(name string) string {
	var text strings.Builder
	response, err := http.Get("http://" + s.addrs[name+":9090"] + "/metrics")
	require.NoError(s.t, err)
	require.NoError(s.t, response.Write(&text))
	_ = response.Body.Close()
	return text.String()
}

// TestStack_MetricsAndTraces lets Prometheus scrape the nodes, and a collector receive their spans.
func TestStack_MetricsAndTraces(t *testing.T) {
	testscale.FullOnly(t, "TestContainers_DurationsFit")
	s := newStack(t)
	program := filepath.Join(s.dir, "otelcol")
	build(t, "../../otelcol", program)
	collector := s.start("collector", s.addrs["collector:4318"], program, "--config="+s.config("collector.yaml", "0.0.0.0:4318", s.addrs["collector:4318"]))
	s.startRedis()
	s.startNode("node-1")
	s.startNode("node-2")
	alerts, err := os.ReadFile("../../../docs/observability/alerts.yml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "alerts.yml"), alerts, 0o600))
	args := s.command("prometheus", "/etc/prometheus/prometheus.yml", s.config("prometheus.yml", "scrape_interval: 5s", "scrape_interval: 1s"), "=/prometheus", "="+filepath.Join(s.dir, "metrics"))
	s.start("prometheus", s.addrs["prometheus:9090"], need(t, "prometheus"), append(args, "--web.listen-address="+s.addrs["prometheus:9090"])...)

	ws := dial(t, s.addrs["node-1:8080"])
	receive(t, ws)
	add(t, ws)
	receive(t, ws)
	s.eventually("both nodes are scraped", func() bool { return s.query("count(up == 1)") == "2" })
	s.eventually("the message is counted", func() bool { return s.query(`sum(penstock_messages_total{type="ADD",code="OK"})`) == "1" })
	s.eventually("the collector prints spans", func() bool { return strings.Contains(collector.output.String(), `"spans"`) })
	var rules struct{ Groups []struct{ Rules []any } }
	assert.True(t, s.prometheus("rules", &rules))
	require.NotEmpty(t, rules.Groups)
	assert.NotEmpty(t, rules.Groups[0].Rules)
}

// query returns the only value of a query, or "".
func (s *stack) query(query string) string {
	var data struct{ Result []struct{ Value [2]any } }
	if !s.prometheus("query?query="+url.QueryEscape(query), &data) || len(data.Result) != 1 {
		return ""
	}
	value, _ := data.Result[0].Value[1].(string)
	return value
}

// prometheus reads data from the API, and reports whether it answers: it does not yet while it starts.
func (s *stack) prometheus(path string, data any) bool {
	response, err := http.Get("http://" + s.addrs["prometheus:9090"] + "/api/v1/" + path)
	if err != nil {
		return false
	}
	defer response.Body.Close() //nolint:errcheck // only read from
	return json.NewDecoder(response.Body).Decode(&struct{ Data any }{data}) == nil
}

// TestGrafana_ReadsWhatIsMounted follows the paths of provisioning: Grafana itself cannot be built here.
func TestGrafana_ReadsWhatIsMounted(t *testing.T) {
	var provider struct {
		Providers []struct{ Options struct{ Path string } }
	}
	text, err := os.ReadFile(filepath.Join(folder, "grafana/dashboards/penstock.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &provider))
	compose, err := os.ReadFile(filepath.Join(folder, "compose.yaml"))
	require.NoError(t, err)
	require.Len(t, provider.Providers, 1)
	assert.Contains(t, string(compose), "dashboard.json:"+provider.Providers[0].Options.Path+"/penstock.json:ro")
	assert.Contains(t, string(compose), "./grafana:/etc/grafana/provisioning:ro")
	source, err := os.ReadFile(filepath.Join(folder, "grafana/datasources/prometheus.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(source), "url: http://prometheus:9090")
}
