package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/router"
)

type say struct {
	Text string `json:"text"`
}

func (say) MessageType() string { return "SAY" }

type unclear struct{ Err error }

func (unclear) MessageType() string { return "UNCLEAR" }

func newContractServer(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL + "/contract"
}

func talkRouter() *router.Router {
	r := router.New(nil)
	router.On(r, func(*router.Context, say) error { return nil })
	return r
}

func TestTypes_PrintsWhatTheServerGenerates(t *testing.T) {
	r := talkRouter()
	opts := &contract.Options{Title: "Chat"}
	address := newContractServer(t, contract.Handler(r, opts))
	c, err := contract.New(r.Describe(), opts)
	require.NoError(t, err)
	for command, want := range map[string][]byte{
		"types": c.TypeScript(), "types -python": c.Python(), "types -kotlin com.example": c.Kotlin("com.example"),
		"asyncapi": c.AsyncAPI(), "schema": c.JSONSchema(),
	} {
		status, stdout, stderr := runCommand(append(strings.Fields(command), address)...)
		assert.Equal(t, exitOK, status)
		assert.Empty(t, stderr)
		assert.Equal(t, string(want), stdout)
	}
}

// runCommand runs the command without input.
func runCommand(args ...string) (status int, stdout, stderr string) { return command("", args...) }

func TestTypes_SendsToken(t *testing.T) {
	handler := contract.Handler(talkRouter(), nil)
	address := newContractServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "log in first", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	status, stdout, stderr := runCommand("types", address)
	assert.Equal(t, exitFailed, status)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "has answered with status 401 Unauthorized: log in first")
	status, stdout, _ = runCommand("types", "-token", "secret", address)
	assert.Equal(t, exitOK, status)
	assert.Contains(t, stdout, "SAY: Say;")
}

func TestTypes_ReportsWhatIsWrong(t *testing.T) {
	c, err := contract.New(talkRouter().Describe(), nil)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	broken := router.New(nil)
	router.DeclareMessage[unclear](broken)
	answer := func(text string) string {
		return newContractServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
	}
	document := string(c.Document())
	for name, tt := range map[string]struct{ address, want string }{
		"unreachable":   {"http://" + listener.Addr().String(), "connection refused"},
		"another page":  {answer("<!doctype html>"), "has answered with something else than a contract; give the URL of contract.Handler: contract: the document cannot be decoded"},
		"other JSON":    {answer(`{"status":"ok"}`), `it has no member "penstock"`},
		"half":          {answer(document[:len(document)/2]), "unexpected EOF"},
		"without types": {answer(strings.Replace(document, `"Say"`, `"Other"`, 1)), `refers to "#/$defs/Say", which does not exist`},
		"not found":     {newContractServer(t, http.NotFoundHandler()), "has answered with status 404 Not Found"},
		"unclear types": {newContractServer(t, contract.Handler(broken, nil)), "status 500 Internal Server Error: contract: UNCLEAR: field Err: error is an interface without variants"},
		"aborted": {newContractServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(document[:99]))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})), "is incomplete: it ends after 99 bytes"},
	} {
		for _, command := range []string{"types", "asyncapi", "schema"} {
			status, stdout, stderr := runCommand(command, tt.address)
			assert.Equal(t, exitFailed, status, name)
			assert.Empty(t, stdout, name)
			assert.Contains(t, stderr, tt.want, name)
			assert.True(t, strings.HasPrefix(stderr, "penstock: "), name)
		}
	}
}

func TestTypes_GivesUpAfterTimeout(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts no connection
	require.NoError(t, err)
	defer func() { assert.NoError(t, listener.Close()) }()
	status, _, stderr := runCommand("types", "-timeout", "1ms", "http://"+listener.Addr().String())
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "deadline exceeded")
}

func TestTypes_RejectsInvalidArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"types needs one URL, such as http://localhost:8080/contract; it has 0 arguments": {"types"},
		"it has 2 arguments": {"types", "http://a", "http://b"},
		"ws://localhost/ws is a WebSocket URL; give that of contract.Handler": {"asyncapi", "ws://localhost/ws"},
		`"localhost:8080" is not a URL that begins with http:// or https://`:  {"types", "localhost:8080"},
		`"http:///x" is not a URL`:                {"types", "http:///x"},
		"flag provided but not defined":           {"types", "-nothing"},
		`"penstock asyncapi -h" prints the flags`: {"asyncapi"},
	} {
		status, stdout, stderr := runCommand(args...)
		assert.Equal(t, exitUsage, status, want)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, want)
	}
}

func TestTypes_PrintsHelp(t *testing.T) {
	status, stdout, stderr := runCommand("types", "-h")
	assert.Equal(t, exitOK, status)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "prints TypeScript types")
	assert.Contains(t, stdout, "-timeout time")
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.True(t, strings.Contains(string(readme), "penstock types"), "README.md describes the command")
}
