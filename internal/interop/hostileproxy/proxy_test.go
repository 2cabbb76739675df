package hostileproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/hostileproxy"
)

// start returns a proxy in front of a server that echoes bodies, and what the server has received.
func start(t *testing.T, fault hostileproxy.Fault) (*hostileproxy.Proxy, chan string) {
	bodies := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			bodies <- string(body) + "..."
			return
		}
		bodies <- string(body)
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	return hostileproxy.Start(t, server.URL, fault), bodies
}

// post returns the body of the response.
func post(p *hostileproxy.Proxy, body string, timeout time.Duration) (string, error) {
	client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(p.URL, "text/plain", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	return string(text), err
}

func TestProxy_HoldsHalfOfABody(t *testing.T) {
	p, bodies := start(t, hostileproxy.HoldBodies(2))
	answer, err := post(p, "first", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, "first", answer)
	assert.Equal(t, "first", <-bodies)
	_, err = post(p, "second", 100*time.Millisecond)
	require.Error(t, err)
	assert.Equal(t, "sec...", <-bodies, "until the client gives up")
}

func TestProxy_DropsResponsesThatTheServerHasSent(t *testing.T) {
	p, bodies := start(t, hostileproxy.DropResponses(3))
	for n := range 6 {
		answer, err := post(p, fmt.Sprint(n), time.Minute)
		assert.Equal(t, fmt.Sprint(n), <-bodies)
		if n%3 == 2 {
			assert.ErrorIs(t, err, io.EOF)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(n), answer)
	}
}
