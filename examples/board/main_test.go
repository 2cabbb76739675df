package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRun_ServesPagesAndShutsDownGracefully(t *testing.T) {
	pages := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(pages, "index.html"), []byte("<title>Notice board</title>"), 0o600))
	ctx, interrupt := context.WithCancel(t.Context())
	reader, stdout := io.Pipe()
	var stderr bytes.Buffer
	exit := make(chan int)
	go func() { exit <- run(ctx, []string{"-addr=localhost:0", "-pages=" + pages}, stdout, &stderr) }()
	line := make([]byte, 100)
	n, err := reader.Read(line)
	require.NoError(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "board: open "))

	resp, err := http.Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "<title>Notice board</title>", string(body))
	assert.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'self'")

	ws, _, err := websocket.Dial(t.Context(), url+"/ws?access_token=ann", nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	interrupt()
	_, _, err = ws.Read(t.Context())
	assert.Equal(t, websocket.StatusServiceRestart, websocket.CloseStatus(err))
	assert.Zero(t, <-exit)
	assert.Empty(t, stderr.String())
}

func TestRun_SaysHowToBuildMissingPages(t *testing.T) {
	var stderr bytes.Buffer
	assert.Equal(t, 2, run(t.Context(), []string{"-addr=localhost:0", "-pages=" + t.TempDir()}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "npm ci --prefix examples/board")
}
