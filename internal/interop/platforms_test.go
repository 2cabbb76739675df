package interop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/penstock-go/penstock/internal/interop/proxytest"
)

func blocks(t *testing.T, guide, language string) []string {
	text, err := os.ReadFile(filepath.Join("../../docs/guides", guide))
	require.NoError(t, err)
	var found []string
	for _, match := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(text, -1) {
		found = append(found, string(match[1]))
	}
	require.NotEmpty(t, found, "blocks of %s in %s", language, guide)
	return found
}

// shutdownTimeout is that of the program in the guide to deployment.
func shutdownTimeout(t *testing.T) time.Duration {
	match := regexp.MustCompile(`shutdownTimeout = (\d+) \* time\.Second`).FindStringSubmatch(strings.Join(blocks(t, "deployment.md", "go"), ""))
	require.NotNil(t, match)
	seconds, err := strconv.Atoi(match[1])
	require.NoError(t, err)
	return time.Duration(seconds) * time.Second
}

// manifests are the objects of the guide to Kubernetes.
type manifests struct {
	deployment appsv1.Deployment
	budget     policyv1.PodDisruptionBudget
	scaler     autoscalingv2.HorizontalPodAutoscaler
	service    corev1.Service
	route      gatewayv1.HTTPRoute
	policy     networkingv1.NetworkPolicy
}

// readManifests decodes all objects. A field that its type does not have is an error.
func readManifests(t *testing.T) *manifests {
	var m manifests
	objects := map[string]any{
		"apps/v1 Deployment": &m.deployment, "policy/v1 PodDisruptionBudget": &m.budget,
		"autoscaling/v2 HorizontalPodAutoscaler": &m.scaler, "v1 Service": &m.service,
		"gateway.networking.k8s.io/v1 HTTPRoute": &m.route,
		"networking.k8s.io/v1 NetworkPolicy":     &m.policy,
	}
	for _, block := range blocks(t, "kubernetes.md", "yaml") {
		for text := range strings.SplitSeq(block, "---\n") {
			var head struct{ APIVersion, Kind string }
			require.NoError(t, yaml.Unmarshal([]byte(text), &head))
			if head.Kind == "" { // the configuration of Prometheus Adapter
				continue
			}
			name := head.APIVersion + " " + head.Kind
			require.Contains(t, objects, name)
			require.NoError(t, yaml.UnmarshalStrict([]byte(text), objects[name]), name)
			delete(objects, name)
		}
	}
	require.Empty(t, objects, "objects that the guide does not have")
	return &m
}

// TestKubernetes_ManifestsAgree compares the objects with each other and with the server.
func TestKubernetes_ManifestsAgree(t *testing.T) {
	m := readManifests(t)
	pod := m.deployment.Spec.Template
	assert.Greater(t, time.Duration(*pod.Spec.TerminationGracePeriodSeconds)*time.Second, shutdownTimeout(t))
	for name, selector := range map[string]map[string]string{
		"deployment": m.deployment.Spec.Selector.MatchLabels, "budget": m.budget.Spec.Selector.MatchLabels,
		"service": m.service.Spec.Selector, "policy": m.policy.Spec.PodSelector.MatchLabels,
	} {
		assert.Equal(t, pod.Labels, selector, name)
	}
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		assert.Equal(t, pod.Labels, spread.LabelSelector.MatchLabels, spread.TopologyKey)
	}
	assert.Equal(t, m.deployment.Name, m.scaler.Spec.ScaleTargetRef.Name)
	assert.Equal(t, m.service.Name, string(m.route.Spec.Rules[0].BackendRefs[0].Name))
	assert.Equal(t, m.service.Spec.Ports[0].Port, *m.route.Spec.Rules[0].BackendRefs[0].Port)

	container, ports := pod.Spec.Containers[0], map[string]bool{}
	for _, port := range container.Ports {
		ports[port.Name] = true
	}
	assert.True(t, ports[m.service.Spec.Ports[0].TargetPort.StrVal])
	for _, rule := range m.policy.Spec.Ingress {
		assert.True(t, ports[rule.Ports[0].Port.StrVal])
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		assert.True(t, ports[probe.HTTPGet.Port.StrVal])
	}
}

func TestKubernetes_MetricOfAutoscalerExists(t *testing.T) {
	metric := readManifests(t).scaler.Spec.Metrics[0].Pods.Metric.Name
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	require.NoError(t, err)
	assert.Contains(t, string(reference), "`"+strings.TrimPrefix(metric, "penstock_")+"`")
}

// TestFly_ConfigurationAgrees reads the members that the guide explains.
func TestFly_ConfigurationAgrees(t *testing.T) {
	var config struct {
		App           string
		PrimaryRegion string `toml:"primary_region"`
		KillSignal    string `toml:"kill_signal"`
		KillTimeout   int    `toml:"kill_timeout"`
		Deploy        struct {
			Strategy       string
			MaxUnavailable float64 `toml:"max_unavailable"`
		}
		Env         map[string]string
		HTTPService struct {
			InternalPort int    `toml:"internal_port"`
			ForceHTTPS   bool   `toml:"force_https"`
			AutoStop     string `toml:"auto_stop_machines"`
			AutoStart    bool   `toml:"auto_start_machines"`
			Concurrency  struct {
				Type string
				Soft int `toml:"soft_limit"`
				Hard int `toml:"hard_limit"`
			}
			Checks []struct {
				Method, Path, Interval, Timeout string
				Grace                           string `toml:"grace_period"`
			}
		} `toml:"http_service"`
		Metrics struct {
			Port int
			Path string
		}
		VM []struct{ Size, Memory string }
	}
	meta, err := toml.Decode(blocks(t, "fly-io.md", "toml")[0], &config)
	require.NoError(t, err)
	assert.Empty(t, meta.Undecoded(), "members that this test does not know")
	assert.Greater(t, time.Duration(config.KillTimeout)*time.Second, shutdownTimeout(t))
	assert.LessOrEqual(t, config.KillTimeout, 300, "the maximum of Fly.io")
	assert.Less(t, config.HTTPService.Concurrency.Soft, config.HTTPService.Concurrency.Hard)
	assert.Equal(t, "/readyz", config.HTTPService.Checks[0].Path)
}

// TestSystemd_UnitsAreValid runs systemd-analyze, which reports unknown settings and values.
func TestSystemd_UnitsAreValid(t *testing.T) {
	program := proxytest.Program(t, "systemd-analyze")
	units := blocks(t, "systemd.md", "ini")
	require.Len(t, units, 2)
	dir := t.TempDir()
	service, socket := filepath.Join(dir, "server.service"), filepath.Join(dir, "server.socket")
	write(t, service, substitute(t, units[0], "/usr/local/bin/server", program))
	write(t, socket, units[1])
	out, err := exec.Command(program, "verify", "--man=no", service, socket).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.NotContains(t, string(out), dir, "warnings")

	match := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(units[0])
	require.NotNil(t, match)
	seconds, err := strconv.Atoi(match[1])
	require.NoError(t, err)
	assert.Greater(t, time.Duration(seconds)*time.Second, shutdownTimeout(t))

	out, err = exec.Command(program, "security", "--offline=yes", "--threshold=15", service).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out[max(0, len(out)-200):])
}
