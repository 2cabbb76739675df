package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFlags_RejectMistakes(t *testing.T) {
	noKey := func(string) string { return "" }
	for flags, want := range map[string]string{
		"-model=gpt":               "OPENAI_API_KEY",
		"-redis=localhost":         "it must be a URL such as redis://",
		"-tokens-per-minute=199":   "they must be at least 200",
		"-tokens-per-day=-1":       "they must be at least 200",
		"-unknown":                 "not defined: -unknown",
		"serve":                    `unexpected argument "serve"`,
		"-addr=256.0.0.1:notaport": "-addr: ",
	} {
		var stderr bytes.Buffer
		assert.Equal(t, 2, serveUntil(t.Context(), []string{flags}, noKey, io.Discard, &stderr), flags)
		assert.Contains(t, stderr.String(), want, flags)
	}
}

func TestFlags_SelectModel(t *testing.T) {
	env := map[string]string{"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": "http://localhost:11434/v1"}
	getenv := func(name string) string { return env[name] }
	cfg, err := parseFlags(nil, getenv, io.Discard)
	require.NoError(t, err)
	assert.True(t, cfg.scripts, "the fake model is the default, even with a key")
	cfg, err = parseFlags([]string{"-model=small"}, getenv, io.Discard)
	require.NoError(t, err)
	assert.False(t, cfg.scripts)
}

// lineWriter sends each write to a channel. The program writes one line at a time.
type lineWriter struct{ lines chan string }

func (w *lineWriter) Write(p []byte) (int, error) {
	w.lines <- string(p)
	return len(p), nil
}

// TestMain_ShutdownWaitsForAnswers interrupts the program while an answer is being written.
func TestMain_ShutdownWaitsForAnswers(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	stdout := &lineWriter{make(chan string, 10)}
	var stderr bytes.Buffer
	exit := make(chan int)
	go func() {
		exit <- serveUntil(ctx, []string{"-addr=localhost:0"}, func(string) string { return "" }, stdout, &stderr)
	}()
	url := strings.TrimSpace(strings.TrimPrefix(<-stdout.lines, "aichat: open "))
	ann := dial(t, url, "ann", http.DefaultClient)
	ann.send("1", "chat", "m", `{"items":20,"everyMs":20,"text":"w"}`)
	ann.firstChunk()
	interrupt()
	a := ann.read("1")
	assert.Equal(t, items("w", 20), a.text)
	assert.Equal(t, "end", a.end.Type)
	_, _, err := ann.ws.Read(t.Context())
	assert.Equal(t, websocket.StatusServiceRestart, websocket.CloseStatus(err))
	assert.Zero(t, <-exit)
	assert.Empty(t, stderr.String())
}
