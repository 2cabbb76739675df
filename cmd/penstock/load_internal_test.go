package main

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/cmd/penstock/internal/load"
	"github.com/penstock-go/penstock/router"
)

type who struct{ Room string }

func (who) MessageType() string { return "WHO" }

func TestLoad_UsageErrors(t *testing.T) {
	for want, args := range map[string]string{
		"load needs one URL":                      "-call WHO",
		"is not a URL that begins with ws://":     "-call WHO http://localhost",
		"no calls; give the type":                 "ws://localhost",
		"-payload is not JSON: {":                 "-call WHO -payload { ws://localhost",
		"-connections is 0; it must be":           "-call WHO -connections 0 ws://localhost",
		"-rate and -ramp must be more than 0":     "-call WHO -rate NaN ws://localhost",
		"-duration and -timeout must be more":     "-call WHO -duration 0s ws://localhost",
		"flag provided but not defined: -publish": "-publish",
	} {
		status, stdout, stderr := command("", append([]string{"load"}, strings.Fields(args)...)...)
		assert.Equal(t, exitUsage, status, args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
	status, _, stderr := command("", "load", "-call", "WHO", "ws://127.0.0.1:1")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "no connection could be opened")
}

func TestLoad_PrintsTheReport(t *testing.T) {
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m who) (who, error) { return m, nil })
	server := httptest.NewServer(r)
	defer server.Close()
	args := []string{"load", "-call", "WHO", "-payload", `{"Room":"{{conn}}"}`, "-rate", "50", "-duration", "200ms", "-warmup", "100ms", "ws" + server.URL[len("http"):]}
	status, stdout, stderr := command("", args...)
	assert.Equal(t, exitOK, status, stderr)
	assert.Contains(t, stdout, "10 connections, 10 calls in ")
	assert.Contains(t, stdout, "answered    10, ")
	assert.Contains(t, stdout, "latency     p50 ")

	status, stdout, _ = command("", append([]string{"load", "-json"}, args[1:]...)...)
	assert.Equal(t, exitOK, status)
	var report struct {
		Answered int
		Latency  map[string]int64
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	assert.Equal(t, 10, report.Answered)
	assert.Contains(t, report.Latency, "p99.9")
}

func TestLoadText_WarnsOfASaturatedClient(t *testing.T) {
	text := loadText(&load.Report{
		Connections: 1, Sent: 9, Elapsed: time.Second, CPU: 0.9, RetryAfter: time.Second,
		Rejected: map[string]int64{"RESOURCE_EXHAUSTED": 9}, Lost: map[int]int64{1013: 2}, Refused: map[string]int64{"status 401": 3},
	})
	for _, want := range []string{
		"warning: the load generator itself was short of CPU", "rejected    9 RESOURCE_EXHAUSTED\n", "lost        2 connections: close code 1013\n",
		"refused     3 connections: status 401\n", "retry after at most 1s\n", "own CPU     90 %",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, loadText(&load.Report{CPU: -1}), "CPU")
}
