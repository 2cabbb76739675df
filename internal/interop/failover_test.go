package interop_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// startRejecting runs a proxy in front of three nodes that reject clients with the code of the header
// X-Test-Code, and accept others. It returns the number of handshakes that the nodes have received.
func startRejecting(t *testing.T, program proxyProgram) (*runningProxy, *atomic.Int64) {
	var handshakes atomic.Int64
	opts := behindProxy("tcp", idleTimeout)
	opts.Authenticate = func(req *http.Request) (router.Identity, error) {
		handshakes.Add(1)
		if code := req.Header.Get("X-Test-Code"); code != "" {
			return router.Identity{}, &errors.Error{Code: errors.Code(code), Message: "rejected"}
		}
		return router.Identity{}, nil
	}
	var nodes [3]string
	for i := range nodes {
		nodes[i] = serve(t, "tcp", withHealth(newRouter(opts)))
	}
	return program.start(t, nodes), &handshakes
}

func TestReverseProxies_RepeatNoRejectedHandshake(t *testing.T) {
	for _, program := range proxyPrograms {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			proxy, handshakes := startRejecting(t, program)
			for code, status := range map[errors.Code]int{
				errors.Unauthenticated:   http.StatusUnauthorized,
				errors.PermissionDenied:  http.StatusForbidden,
				errors.ResourceExhausted: http.StatusTooManyRequests,
				errors.Internal:          http.StatusInternalServerError,
			} {
				before := handshakes.Load()
				assert.Equal(t, status, proxy.status(t, "127.0.0.1", http.Header{"X-Test-Code": {string(code)}}))
				assert.EqualValues(t, 1, handshakes.Load()-before, "nodes that received the handshake rejected with %s", code)
			}
		})
	}
}

// TestReverseProxies_KeepNodesThatAnswer503 rejects many clients with 503. That is the answer about
// these clients: others are still accepted.
func TestReverseProxies_KeepNodesThatAnswer503(t *testing.T) {
	for _, program := range proxyPrograms {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			proxy, handshakes := startRejecting(t, program)
			for range 10 {
				before := handshakes.Load()
				assert.Equal(t, http.StatusServiceUnavailable, proxy.status(t, "127.0.0.1", http.Header{"X-Test-Code": {string(errors.Unavailable)}}))
				assert.LessOrEqual(t, handshakes.Load()-before, int64(2), "nodes that received the handshake")
				assert.Equal(t, http.StatusSwitchingProtocols, proxy.status(t, "127.0.0.1", nil))
			}
		})
	}
}

// TestReverseProxies_RepeatHandshakeOfFailedNode has nodes that end the connection when they have
// received a handshake, as one that is killed does.
func TestReverseProxies_RepeatHandshakeOfFailedNode(t *testing.T) {
	for _, program := range proxyPrograms {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			var handshakes atomic.Int64
			proxy := startFailing(t, program, func(*http.Request) {
				handshakes.Add(1)
				panic(http.ErrAbortHandler)
			})
			want := map[string]int64{"nginx": 2, "haproxy": 1, "caddy": 1}[program.name]
			assert.Equal(t, http.StatusBadGateway, proxy.status(t, "127.0.0.1", nil))
			assert.Equal(t, want, handshakes.Load(), "nodes that received the handshake")
		})
	}
}

// startFailing runs a proxy in front of three nodes that are healthy, but handle no handshake.
func startFailing(t *testing.T, program proxyProgram, handle func(*http.Request), pairs ...string) *runningProxy {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws", func(_ http.ResponseWriter, req *http.Request) { handle(req) })
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	var nodes [3]string
	for i := range nodes {
		nodes[i] = serve(t, "tcp", mux)
	}
	return program.start(t, nodes, pairs...)
}

// TestReverseProxies_RepeatNoSlowHandshake has nodes that receive a handshake and do not answer it
// before the proxy's timeout.
func TestReverseProxies_RepeatNoSlowHandshake(t *testing.T) {
	for _, program := range proxyPrograms {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			var handshakes atomic.Int64
			pairs := []string{"60s", idleTimeout.String()} // 60 s are longer than 5 s, too
			if program.name == "nginx" {
				pairs = append(pairs, "proxy_next_upstream_timeout 5s", "proxy_next_upstream_timeout 1s")
			}
			proxy := startFailing(t, program, func(req *http.Request) {
				handshakes.Add(1)
				<-req.Context().Done()
			}, pairs...)
			assert.Equal(t, http.StatusGatewayTimeout, proxy.status(t, "127.0.0.1", nil))
			assert.EqualValues(t, 1, handshakes.Load(), "nodes that received the handshake")
		})
	}
}
