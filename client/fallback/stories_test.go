//go:build !js

package fallback_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/rules"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// runStories runs the stories of a file of testdata, each once for each of its alternatives. start returns what runs the
// steps of one.
func runStories(t *testing.T, name string, start func(t *testing.T) (step func(step, arguments string))) {
	text, err := os.ReadFile("testdata/" + name + ".txt")
	require.NoError(t, err)
	for _, story := range strings.Split(string(text), "\n== ")[1:] {
		title, steps, _ := strings.Cut(story, "\n")
		alternatives := []string{""}
		if list, ok := strings.CutPrefix(steps, "for "); ok {
			list, steps, _ = strings.Cut(list, "\n")
			alternatives = strings.Split(list, " | ")
		}
		for _, alternative := range alternatives {
			t.Run(title+", "+alternative, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					step := start(t)
					for line := range strings.Lines(strings.TrimSpace(steps)) {
						word, arguments, _ := strings.Cut(strings.ReplaceAll(line, "$", alternative), " ")
						step(strings.TrimSpace(word), strings.TrimSpace(arguments))
						if t.Failed() {
							t.Fatal("step:", line)
						}
					}
				})
			})
		}
	}
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// unquoted replaces \r and \n, and writes out a text of 16 KiB.
func unquoted(text string) string {
	return strings.NewReplacer(`\n`, "\n", `\r`, "\r", "16KiB", strings.Repeat("a", 16<<10)).Replace(text)
}

// An answer is what a server or a proxy does with a request.
type answer func(req *http.Request) (*http.Response, error)

// answerOf returns the answer that a text describes: after a time, a status and the server's headers, events, or none.
func answerOf(t *testing.T, text string) answer {
	t.Helper()
	first, rest, _ := strings.Cut(text, " ")
	if delay, err := time.ParseDuration(first); err == nil && first != "0" {
		then := answerOf(t, rest)
		return func(req *http.Request) (*http.Response, error) {
			if err := rules.Sleep(req.Context(), delay); err != nil {
				return nil, err
			}
			return then(req)
		}
	}
	switch first {
	case "reset":
		return func(*http.Request) (*http.Response, error) { return nil, errors.New("unreachable") }
	case "hangs":
		return func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, context.Cause(req.Context())
		}
	case "mute":
		return func(req *http.Request) (*http.Response, error) { return (&script{}).stream(req.Context()), nil }
	}
	return func(*http.Request) (*http.Response, error) {
		if first == "events" {
			resp := response(http.StatusOK, true)
			resp.Body = io.NopCloser(strings.NewReader(unquoted(rest)))
			return resp, nil
		}
		status, err := strconv.Atoi(first)
		require.NoError(t, err)
		resp := response(status, strings.HasPrefix(rest, "ours"))
		if rest == "forbids" {
			resp.Header.Set("Penstock-Fallback", "0")
		}
		if _, after, ok := strings.Cut(rest, "retry:"); ok {
			resp.Header.Set("Retry-After", after)
		}
		return resp, nil
	}
}
