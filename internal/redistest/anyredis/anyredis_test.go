package anyredis_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/redistest/anyredis"
)

func TestClient_FallsBackToMiniredis(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("REDIS_URL", "")
	t.Setenv("CI", "")
	t.Setenv("PENSTOCK_REQUIRE_REDIS", "")
	assert.NoError(t, anyredis.Client(t).Ping(t.Context()).Err())
}

func TestClient_IsOfSharedServer(t *testing.T) {
	server := redistest.Start(t)
	t.Setenv("REDIS_URL", "redis://"+server.Addr)
	assert.Equal(t, server.Addr, anyredis.Client(t).Options().Addr)
}
