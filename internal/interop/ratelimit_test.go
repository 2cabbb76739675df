package interop_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

func TestRateLimit_Chi(t *testing.T) {
	api := httptest.NewServer(newAPI(memory.NewLimiter(limit.PerHour(3)), memory.NewLimiter(limit.PerHour(1))))
	defer api.Close()
	for _, tt := range []struct {
		path     string
		status   int
		policies int
		body     string
	}{
		{"/search", 200, 2, "results\n"},
		{"/search", 429, 2, "too many requests\n"},
		{"/rooms", 200, 1, "rooms\n"},
		{"/rooms", 429, 1, "too many requests\n"},
	} {
		resp, err := http.Get(api.URL + tt.path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.NoError(t, resp.Body.Close())
		assert.Equal(t, tt.status, resp.StatusCode, "%v", tt)
		assert.Equal(t, tt.body, string(body), "%v", tt)
		assert.Len(t, resp.Header.Values("RateLimit"), tt.policies, "%v", tt)
		assert.Equal(t, tt.status == 429, resp.Header.Get("Retry-After") != "", "%v", tt)
	}
}

func TestRateLimit_GRPC(t *testing.T) {
	server := grpc.NewServer(grpc.UnaryInterceptor(rateLimit(memory.NewLimiter(limit.PerHour(2)))))
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	check := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}
	require.NoError(t, check())
	require.NoError(t, check())
	rejected := status.Convert(check())
	assert.Equal(t, codes.ResourceExhausted, rejected.Code())
	require.Len(t, rejected.Details(), 1)
	delay := rejected.Details()[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration()
	assert.InDelta(t, 30*time.Minute, delay, float64(time.Minute))
}
