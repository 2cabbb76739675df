package docs_test

import (
	"encoding/json"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/middleware/metrics"
)

// A dashboard holds the parts of Grafana's format that the tests check.
type dashboard struct {
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Datasource  observabilitySource
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		Expr       string
		Datasource observabilitySource
	}
}

type observabilitySource struct{ Type, UID string }

func readDashboard(t *testing.T) (d dashboard) {
	text, err := os.ReadFile("observability/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// TestDashboardAndAlerts_QueriesReturnDataOfChat lets a real Prometheus scrape two nodes under
// load, and runs every query of the dashboard and of the alerts.
func TestDashboardAndAlerts_QueriesReturnDataOfChat(t *testing.T) {
	testscale.FullOnly(t, "TestGuideAndDashboard_CoverAllMetricsAndAlerts")
	program(t, "prometheus")
	bin, redis := buildChat(t), redistest.Start(t)
	limits := filepath.Join(t.TempDir(), "limits.txt")
	require.NoError(t, os.WriteFile(limits, []byte("chat: 60/s\ntry: 10/s\n"), 0o600))
	flags := []string{"-redis=redis://" + redis.Addr, "-limits=" + limits, "-try=1/s"}
	one, two := startChat(t, bin, flags...), startChat(t, bin, flags...)
	p := startPrometheus(t, one.target(), two.target())
	load(t, one, two)

	concrete := strings.NewReplacer("$job", "chat", "$instance", ".+", "$__rate_interval", "5s")
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			if !strings.Contains(target.Expr, "penstock_run") { // the load has no runs; middleware/metrics tests these
				p.hasData(t, panel.Title, concrete.Replace(target.Expr))
			}
		}
	}
	for _, v := range readDashboard(t).Templating.List {
		query, ok := v.Query.(map[string]any)
		if !ok { // a variable for the data observabilitySource
			continue
		}
		parts := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(query["query"].(string))
		require.NotNil(t, parts, v.Name)
		var found []string
		p.get(t, "label/"+parts[2]+"/values", url.Values{"match[]": {concrete.Replace(parts[1])}}, &found)
		assert.NotEmpty(t, found, v.Name)
	}

	alerts := p.alerts(t)
	assert.Len(t, alerts, 18)
	for _, alert := range alerts {
		assert.Equal(t, "ok", alert.Health, "%s: %s", alert.Name, alert.LastError)
		compared := strings.Replace(alert.Query, " > ", " > bool ", 1) // 0 or 1 instead of no result
		require.NotEqual(t, alert.Query, compared, "the expression of an alert must contain a comparison by >")
		if !strings.Contains(alert.Query, "penstock_run") {
			p.hasData(t, alert.Name, compared)
		}
	}
	assert.Positive(t, p.values(t, `sum(rate(penstock_limit_decisions_total{outcome="rejected",limit="chat"}[10s]))`)[0], "one client of the load floods")
	assert.Less(t, p.values(t, `histogram_quantile(0.5, sum by (le) (rate(penstock_broker_lag_seconds_bucket[10s])))`)[0], 0.5)
}

// hasData waits until a query returns a number.
func (p prometheus) hasData(t *testing.T, what, query string) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.True(t, slices.ContainsFunc(p.values(t, query), func(v float64) bool { return !math.IsNaN(v) }), "%s: %s returns no data", what, query)
	}, 30*time.Second, 100*time.Millisecond)
}

func TestDashboard_PanelsAreCompleteAndDoNotOverlap(t *testing.T) {
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		assert.False(t, ids[p.ID], "%s has the ID of another panel", p.Title)
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				assert.Less(t, x, 24, p.Title)
				assert.Empty(t, taken[[2]int{x, y}], "%s overlaps it", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		assert.NotEmpty(t, p.Description, p.Title)
		assert.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		assert.NotEmpty(t, p.Targets, p.Title)
		assert.Equal(t, observabilitySource{"prometheus", "${datasource}"}, p.Datasource, "%s must use the variable for its data source", p.Title)
		for _, target := range p.Targets {
			assert.Equal(t, p.Datasource, target.Datasource, p.Title)
			assert.Contains(t, target.Expr, `{job=~"$job",instance=~"$instance"`, p.Title)
		}
	}
}

// TestGuideAndDashboard_CoverAllMetricsAndAlerts compares the metrics of the code with the
// dashboard, the alerts and the reference, and the alerts with the guide.
func TestGuideAndDashboard_CoverAllMetricsAndAlerts(t *testing.T) {
	guide := read(t, "guides/observability.md")
	reference := read(t, "reference/metrics.md")
	queries := read(t, "observability/dashboard.json")
	rules := read(t, "observability/alerts.yml")
	known := map[string]bool{}
	for _, name := range metricNames() {
		known[name] = true
		assert.True(t, strings.Contains(reference, "`"+name), "the reference must describe %s", name)
		assert.True(t, regexp.MustCompile(`penstock_`+name+`(_bucket|_sum|_count)?\b`).MatchString(queries), "the dashboard must show %s", name)
	}
	for _, name := range regexp.MustCompile(`penstock_(\w+)`).FindAllStringSubmatch(queries+rules, -1) {
		assert.True(t, known[name[1]] || known[histogram.ReplaceAllString(name[1], "")], "there is no %s", name[0])
	}
	alerts := regexp.MustCompile(`(?s)alert: (\w+)\n.*?runbook_url: \S*/docs/guides/observability.md#(\w+)\n`).FindAllStringSubmatch(rules, -1)
	assert.Len(t, alerts, strings.Count(rules, "alert: "))
	for _, alert := range alerts {
		assert.True(t, strings.Contains(guide, "\n### "+alert[1]+"\n"), "the guide must have a section about %s", alert[1])
		assert.Equal(t, strings.ToLower(alert[1]), alert[2], "the runbook of an alert is its section in the guide")
	}
}

var histogram = regexp.MustCompile(`_(bucket|sum|count)$`)

func read(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// A registerer stores the collector that is registered with it.
type registerer struct {
	client.Registerer
	collector client.Collector
}

func (r *registerer) Register(c client.Collector) error { r.collector = c; return nil }

// metricNames returns the names of all metrics, without their prefix.
func metricNames() (names []string) {
	var r registerer
	metrics.New(&r, nil)
	descs := make(chan *client.Desc)
	go func() { defer close(descs); r.collector.Describe(descs) }()
	for desc := range descs {
		names = append(names, regexp.MustCompile(`fqName: "penstock_(\w+)"`).FindStringSubmatch(desc.String())[1])
	}
	return names
}
