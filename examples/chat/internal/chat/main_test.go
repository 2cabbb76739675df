package chat

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// lineWriter sends each write to a channel. The program writes one line at a time.
type lineWriter struct{ lines chan string }

func (w *lineWriter) Write(p []byte) (int, error) {
	w.lines <- string(p)
	return len(p), nil
}

func TestRun_ServesAndShutsDownGracefully(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	stdout := &lineWriter{make(chan string, 10)}
	var stderr bytes.Buffer
	exit := make(chan int)
	trace := t.TempDir()
	go func() {
		exit <- Run(ctx, []string{"-addr=localhost:0", "-metrics-addr=127.0.0.1:0", "-record=" + trace}, stdout, &stderr)
	}()
	metricsURL := strings.TrimSpace(strings.TrimPrefix(<-stdout.lines, "chat: metrics on "))
	url := strings.TrimSpace(strings.TrimPrefix(<-stdout.lines, "chat: open "))

	assert.Equal(t, http.StatusOK, get(t, url+"/healthz").StatusCode)
	page := get(t, url+"/")
	assert.Equal(t, http.StatusOK, page.StatusCode)
	assert.Contains(t, page.Header.Get("Content-Type"), "text/html")
	assert.Contains(t, page.Header.Get("Content-Security-Policy"), "default-src 'self'")
	assert.Equal(t, http.StatusNotFound, get(t, url+"/nothing").StatusCode)

	ws, _, err := websocket.Dial(t.Context(), url+"/ws?access_token=ann", nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"WHO","meta":{"correlationId":"1"},"payload":{"room":"go"}}`)))
	_, _, err = ws.Read(t.Context())
	require.NoError(t, err)
	text, err := io.ReadAll(get(t, metricsURL).Body)
	require.NoError(t, err)
	for _, line := range []string{
		"penstock_connections_open 1", `penstock_messages_total{code="OK",type="WHO"} 1`, `penstock_limiter_keys{limit="chat"} 1`,
		`penstock_limit_decisions_total{kind="rate",limit="chat",mode="enforced",outcome="admitted",reason=""} 1`, "go_goroutines",
	} {
		assert.Contains(t, string(text), line)
	}
	assert.Equal(t, http.StatusNotFound, get(t, url+"/metrics").StatusCode)
	interrupt()
	_, _, err = ws.Read(t.Context())
	assert.Equal(t, websocket.StatusServiceRestart, websocket.CloseStatus(err))
	assert.Equal(t, "chat: shutting down\n", <-stdout.lines)
	assert.Zero(t, <-exit)
	assert.Empty(t, stderr.String())

	files, err := filepath.Glob(filepath.Join(trace, "trace-*.csv"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	recorded, err := os.ReadFile(files[0])
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(string(recorded), "\n"), "a header and one message: %s", recorded)
	assert.NotContains(t, string(recorded), "ann")
}

func TestServer_MetricsArePublicOnlyIfAddressesMatch(t *testing.T) {
	status := func(flags ...string) int {
		cfg, err := parseFlags(flags, io.Discard)
		require.NoError(t, err)
		w := httptest.NewRecorder()
		newServer(cfg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	assert.Equal(t, http.StatusNotFound, status())
	assert.Equal(t, http.StatusNotFound, status("-metrics-addr=localhost:9090"), "metrics have a port of their own")
	assert.Equal(t, http.StatusOK, status("-metrics-addr=localhost:8080"))
}

func get(t *testing.T, url string) *http.Response {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestServer_LameDuckPhaseAcceptsClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chat := newServer(newConfig(t, "-lame-duck=1m"))
		health := func() int {
			w := httptest.NewRecorder()
			chat.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			return w.Code
		}
		assert.Equal(t, http.StatusOK, health())
		started, ended := time.Now(), make(chan error)
		go func() { ended <- chat.router.Shutdown(t.Context()) }()
		time.Sleep(time.Minute - time.Second)
		assert.Equal(t, http.StatusServiceUnavailable, health())
		closed := routertest.Dial(t, chat.router, withToken("ann")).Closed()
		assert.Equal(t, time.Minute, time.Since(started).Truncate(time.Second))
		assert.EqualValues(t, router.StatusServiceRestart, closed.Code)
		assert.Contains(t, closed.Reason, `"retryAfterMs":`)
		require.NoError(t, <-ended)
	})
}
