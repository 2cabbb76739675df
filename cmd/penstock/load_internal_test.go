package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/cmd/penstock/internal/load"
	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

type who struct{ Room string }

func (who) MessageType() string { return "WHO" }

func TestLoad_UsageErrors(t *testing.T) {
	for want, args := range map[string]string{
		"load needs one URL":                          "-call WHO",
		"is not a URL that begins with ws://":         "-call WHO http://localhost",
		"nothing to do; give the type of a message":   "ws://localhost",
		"-call and -send exclude each other":          "-call WHO -send SAY ws://localhost",
		"-contract makes the payload, so it excludes": "-call WHO -contract c.json -payload {} ws://localhost",
		"-token and -token-file exclude each other":   "-call WHO -token a -token-file b ws://localhost",
		"-payload is not JSON: {":                     "-call WHO -payload { ws://localhost",
		"must be a type, a space and JSON, which":     "-call WHO -setup JOIN ws://localhost -setup",
		"must be a name, a colon and a value":         "-call WHO -header Cookie ws://localhost",
		"-connections is 0; it must be":               "-call WHO -connections 0 ws://localhost",
		"-rate and -ramp must be more than 0":         "-call WHO -rate NaN ws://localhost",
		"-duration and -timeout must be more":         "-call WHO -duration 0s ws://localhost",
		`plot file "a.gif" must end in .svg or .png`:  "-call WHO -plot a.gif ws://localhost",
		"flag provided but not defined: -publish":     "-publish",
	} {
		arguments := strings.Fields(args)
		if last := len(arguments) - 1; arguments[last] == "-setup" {
			arguments = append([]string{"-setup", "JOIN {"}, arguments[:last]...)
		}
		status, stdout, stderr := command("", append([]string{"load"}, arguments...)...)
		assert.Equal(t, exitUsage, status, args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
}

func TestLoad_Failures(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(empty, []byte("\n\n"), 0o600))
	for want, args := range map[string]string{
		"no connection could be opened":     "-call WHO",
		"the file contains no token; write": "-call WHO -token-file " + empty,
		"/no/tokens: no such file":          "-call WHO -token-file /no/tokens",
		"/no/payload: no such file":         "-call WHO -payload @/no/payload",
		"/no/contract.json: no such file":   "-call WHO -contract /no/contract.json",
	} {
		status, stdout, stderr := command("", append([]string{"load"}, strings.Fields(args+" ws://127.0.0.1:1")...)...)
		assert.Equal(t, exitFailed, status, args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
}

func webSocketURL(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return "ws" + server.URL[len("http"):]
}

func whoRouter() *router.Router {
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m who) (who, error) { return m, nil })
	return r
}

func TestLoad_PrintsTheReport(t *testing.T) {
	dir := t.TempDir()
	report, plot := filepath.Join(dir, "report.json"), filepath.Join(dir, "plot.svg")
	args := []string{"load", "-call", "WHO", "-payload", "@-", "-rate", "50", "-duration", "200ms", "-warmup", "100ms", "-json", report, "-plot", plot, webSocketURL(t, whoRouter())}
	status, stdout, stderr := command(`{"Room":"{{conn}}"}`+"\n", args...)
	assert.Equal(t, exitOK, status, stderr)
	assert.Contains(t, stdout, "10 connections, 10 messages in ")
	assert.Contains(t, stdout, "answered    10, ")
	assert.Contains(t, stdout, "latency     p50 ")
	assert.Empty(t, stderr, "standard error is not a terminal")
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	var read struct {
		Answered int
		Latency  map[string]int64
		Steps    []struct{ Due, Answered int }
	}
	require.NoError(t, json.Unmarshal(text, &read))
	assert.Equal(t, 10, read.Answered)
	assert.Contains(t, read.Latency, "p99.9")
	require.Len(t, read.Steps, 2)
	assert.Equal(t, 10, read.Steps[0].Answered+read.Steps[1].Answered)
	image, err := os.ReadFile(plot)
	require.NoError(t, err)
	assert.Contains(t, string(image), "<title>10 connections, 10 messages</title>")
}

func TestLoad_JSONReplacesTheText(t *testing.T) {
	status, stdout, stderr := command("", "load", "-call", "WHO", "-payload", `{"Room":""}`, "-duration", "100ms", "-json", "-", webSocketURL(t, whoRouter()))
	assert.Equal(t, exitOK, status, stderr)
	assert.True(t, json.Valid([]byte(stdout)), stdout)
}

// The mark of a message is in the publication, and each connection has its own token and room.
func TestLoad_ReachOfASetupWithTokens(t *testing.T) {
	var mu sync.Mutex
	users := map[string]int{}
	r := router.New(&router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
		mu.Lock()
		defer mu.Unlock()
		users[router.Token(req)+" "+req.Header.Get("X-Number")]++
		return router.Identity{UserID: router.Token(req)}, nil
	}})
	router.RPC(r, func(ctx *router.Context, m who) (who, error) { return m, ctx.Subscribe(m.Room) })
	router.On(r, func(ctx *router.Context, m say) error { return ctx.Publish("go", m) })
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("ann\nbob\n"), 0o600))
	status, stdout, stderr := command("", "load", "-send", "SAY", "-payload", `{"text":"{{mark}}"}`, "-setup", `WHO {"Room":"go"}`, "-connections", "3",
		"-token-file", tokens, "-header", "X-Number: {{conn}}", "-rate", "50", "-duration", "200ms", webSocketURL(t, r))
	assert.Equal(t, exitOK, status, stderr)
	assert.Contains(t, stdout, "\nreach       30 of 30 received, 100 %\ndelivery    p50 ")
	assert.Equal(t, map[string]int{"ann 0": 1, "bob 1": 1, "ann 2": 1}, users)
}

func TestLoad_RefusedSetupIsCounted(t *testing.T) {
	r := whoRouter()
	router.On(r, func(*router.Context, say) error { return errors.Errorf(errors.PermissionDenied, "not you") })
	status, stdout, stderr := command("", "load", "-call", "WHO", "-setup", `SAY {"text":"{{conn}}"}`, webSocketURL(t, r))
	assert.Equal(t, exitFailed, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "no connection could be opened: SAY: PERMISSION_DENIED: not you")
}

func TestLoad_PayloadFromTheContract(t *testing.T) {
	r := talkRouter()
	router.RPC(r, func(_ *router.Context, m who) (who, error) {
		if m.Room != "text" {
			return m, errors.Errorf(errors.InvalidArgument, "no room")
		}
		return m, nil
	})
	mux := http.NewServeMux()
	mux.Handle("/contract", contract.Handler(r, nil))
	mux.Handle("/ws", r)
	address := webSocketURL(t, mux)
	page := "http" + address[len("ws"):] + "/contract"
	status, stdout, stderr := command("", "load", "-call", "WHO", "-contract", page, "-rate", "50", "-duration", "100ms", address+"/ws")
	assert.Equal(t, exitOK, status, stderr)
	assert.Contains(t, stdout, "answered    5, ")
	for want, args := range map[string]string{
		"SAY is an event, which has no reply; give -send SAY":                            "-call SAY -contract " + page,
		"WHO is a call, which has a reply; give -call WHO":                               "-send WHO -contract " + page,
		`/contract: the contract has no message "NO" that clients send; it has SAY, WHO`: "-call NO -contract " + page,
		"is a WebSocket URL; give that of contract.Handler":                              "-call WHO -contract " + address + "/ws",
		"has answered with status 426 Upgrade Required":                                  "-call WHO -contract " + strings.Replace(page, "/contract", "/ws", 1),
	} {
		_, _, stderr = command("", append([]string{"load"}, strings.Fields(args+" "+address+"/ws")...)...)
		assert.Contains(t, stderr, want)
	}
}

// TestLoad_SignalPrintsTheReport builds the command, and ends it as Ctrl-C, kill and containers do.
func TestLoad_SignalPrintsTheReport(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted on Windows")
	}
	program := filepath.Join(t.TempDir(), "penstock")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) { testSignal(t, program, signal) })
	}
}

func testSignal(t *testing.T, program string, signal os.Signal) {
	called := make(chan struct{}, 1000)
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m who) (who, error) { called <- struct{}{}; return m, nil })
	var stdout, stderr strings.Builder
	cmd := exec.Command(program, "load", "-call", "WHO", "-payload", `{"Room":""}`, "-rate", "100", "-duration", "1h", webSocketURL(t, r))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Start())
	for range 20 {
		<-called
	}
	require.NoError(t, cmd.Process.Signal(signal))
	require.NoError(t, cmd.Wait(), &stderr)
	assert.Regexp(t, `^10 connections, [2-9]\d messages in `, stdout.String())
	assert.Contains(t, stdout.String(), "\nunanswered  0\nnot sent    0\n")
	assert.Empty(t, stderr.String())
}

func TestLoadText_WarnsOfASaturatedClient(t *testing.T) {
	text := loadText(&load.Report{
		Connections: 1, Sent: 9, Elapsed: time.Second, CPU: 0.9, RetryAfter: time.Second,
		Rejected: map[string]int64{"RESOURCE_EXHAUSTED": 9}, Lost: map[int]int64{1013: 2}, Refused: map[string]int64{"status 401": 3},
		Reopened: 2, Outages: load.Percentiles{P50: time.Second, Max: 2 * time.Second},
		Reach: &load.Reach{Expected: 1_000_000, Received: 999_999, Duplicates: 1},
	}, true)
	for _, want := range []string{
		"warning: the load generator itself was short of CPU", "rejected    9 RESOURCE_EXHAUSTED\n", "lost        2 connections: close code 1013\n",
		"refused     3 connections: status 401\n", "retry after at most 1s\n", "own CPU     90 %",
		"reopened    2 connections: p50 1s ",
		"reach       999,999 of 1,000,000 received, 99.99 %; 1 duplicate\n",
	} {
		assert.Contains(t, text, want)
	}
	const warning = "warning: the load generator itself was short of CPU"
	late := load.Report{Sent: 1, CPU: 0.3, Late: load.Percentiles{P99: 300 * time.Millisecond}, Latency: load.Percentiles{P99: 500 * time.Millisecond}}
	assert.Contains(t, loadText(&late, true), warning)
	late.Latency.P99 = time.Second
	assert.NotContains(t, loadText(&late, true), warning)
	assert.Equal(t, "2 connections, 1s\nreach       unknown: it was reset\n",
		loadText(&load.Report{Connections: 2, Elapsed: time.Second, CPU: -1, Reach: &load.Reach{Unknown: "it was reset"}}, false))
}

func TestProgressText(t *testing.T) {
	assert.Equal(t, "opening: 3,000 connections", progressText(load.Progress{Opening: true, Connections: 3000}))
	p := load.Progress{Connections: 1, Elapsed: 2 * time.Second, Total: time.Minute}
	assert.Equal(t, "2s of 1m: 1 connection, 0/s answered", progressText(p))
	p.Answered, p.Rejected, p.Latency = 1500, 7, load.Percentiles{P50: time.Millisecond, P99: 2 * time.Millisecond}
	assert.Equal(t, "2s of 1m: 1 connection, 1,500/s answered, p50 1ms, p99 2ms, 7 rejected", progressText(p))
}
