//go:build !js

package browsertest

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

func TestPage_RecordsProblems(t *testing.T) {
	testscale.FullOnly(t, "TestPage_ReportsUnexpectedProblems")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`<link rel="icon" href="data:,"><script>
				console.log("a log")
				setTimeout(() => { throw new Error("an exception") })
				Promise.allSettled([fetch("gone"), fetch("cut"), new Promise((done) => {
					new WebSocket("ws://" + location.host + "/socket").onclose = done
				})]).then(() => document.title = "done")
			</script>`))
		case "/cut":
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer server.Close()
	p := Open(Start(t), t, server.URL)
	p.WaitEqual("document.title", "done")
	requireProblem := func(want string) {
		t.Helper()
		contains := func(problem string) bool { return strings.Contains(problem, want) }
		require.Eventually(t, func() bool { return slices.ContainsFunc(p.unexpected(), contains) }, Timeout, time.Millisecond, want)
	}
	for _, want := range []string{
		`console.log: "a log"`,
		"uncaught: ",
		"Error: an exception",
		"status 418: " + server.URL + "/gone",
		"network error: Failed to load resource",
		"failed: " + server.URL + "/cut: net::ERR_EMPTY_RESPONSE",
		"network error: WebSocket connection to 'ws:" + strings.TrimPrefix(server.URL, "http:") + "/socket' failed",
	} {
		requireProblem(want)
	}
	p.Expect("console.")
	p.Expect("uncaught: ")
	for _, problem := range p.unexpected() {
		assert.NotContains(t, problem, "a log")
		assert.NotContains(t, problem, "an exception")
	}
	p.Expect("") // any
	assert.Empty(t, p.unexpected())

	p.expected = nil
	Eval[chromedp.Void](p, `void setTimeout(() => confirm("a question"))`)
	requireProblem("dialog: a question")
	p.Expect("")
}

func TestPage_TabsOfABrowserContextShareStorage(t *testing.T) {
	testscale.FullOnly(t, "TestPage_ReportsUnexpectedProblems")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<link rel="icon" href="data:,"><p>text</p>`))
	}))
	defer server.Close()
	browser := Start(t)
	one, other := Open(browser, t, server.URL), Open(browser, t, server.URL)
	Eval[string](one, `localStorage.note = "value"`)
	tab := one.OpenTab(server.URL)
	tab.WaitEqual("localStorage.note", "value")
	tab.WaitFor(`document.querySelector("p")`)
	other.WaitEqual("localStorage.note ?? null", nil)
}
