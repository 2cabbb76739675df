package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// startProvider starts an API that answers with a status and a body.
func startProvider(t *testing.T, status int, body string) (p *provider, requests <-chan string) {
	received := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		received <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(text)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return &provider{name: "small", url: server.URL, key: "secret-key"}, received
}

// TestProvider_ErrorsArePrivate has answers of providers that users must not see.
func TestProvider_ErrorsArePrivate(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
	}{
		"an error":          {http.StatusUnauthorized, `{"error":"the key secret-key is invalid"}`},
		"not JSON":          {http.StatusOK, "data: secret\n\n"},
		"cut off":           {http.StatusOK, `data: {"choices":[{"delta":{"content":"secret"}}]}` + "\n\n"},
		"nothing":           {http.StatusOK, ""},
		"a line of a page":  {http.StatusOK, "<html>secret</html>\n"},
		"a line of a 2 MiB": {http.StatusOK, "data: " + strings.Repeat("s", 2<<20) + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := startProvider(t, test.status, test.body)
			_, err := p.answer(t.Context(), []Message{{Text: "hello", Role: RoleUser}}, func(string) error { return nil })
			public, ok := errors.AsType[*errors.Error](err)
			require.True(t, ok)
			assert.Equal(t, errors.Unavailable, public.Code)
			assert.Equal(t, "the model is not available", public.Message)
		})
	}
}

func TestProvider_StreamsText(t *testing.T) {
	p, requests := startProvider(t, http.StatusOK, `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}

: a comment

data: {"choices":[{"delta":{"content":"Hel"}}],"usage":null}

data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}

data: [DONE]
`)
	var text []string
	used, err := p.answer(t.Context(), []Message{{Text: "Say hello", Role: RoleUser}}, func(delta string) error {
		text = append(text, delta)
		return nil
	})
	require.NoError(t, err)
	assert.EqualValues(t, 9, used)
	assert.Equal(t, []string{"Hel", "lo"}, text)
	assert.Equal(t, `POST /chat/completions Bearer secret-key {"model":"small","messages":[{"role":"user","content":"Say hello"}],`+
		`"max_completion_tokens":2000,"stream":true,"stream_options":{"include_usage":true}}`, <-requests)
}

// TestProvider_StopCancelsRequest: a run that is stopped must not cost tokens of the provider.
func TestProvider_StopCancelsRequest(t *testing.T) {
	canceled := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"Hel"}}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(canceled)
	}))
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	p := &provider{url: server.URL}
	_, err := p.answer(ctx, []Message{{Text: "hello", Role: RoleUser}}, func(string) error {
		stop()
		return nil
	})
	assert.Error(t, err)
	<-canceled
}
