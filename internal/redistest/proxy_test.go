package redistest_test

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
)

// startProxied returns a proxy to a new server, and a client of the proxy.
func startProxied(t *testing.T) (*redistest.Proxy, *redis.Client) {
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	opts := &redis.Options{Addr: proxy.Addr}
	failFast(opts)
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, ping(t, client, longTimeout))
	return proxy, client
}

func TestProxy_CutClosesAndRefusesConnections(t *testing.T) {
	proxy, client := startProxied(t)
	conn, err := net.Dial("tcp", proxy.Addr)
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // the test breaks it

	proxy.Cut()
	proxy.Cut()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(longTimeout)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = net.Dial("tcp", proxy.Addr)
	require.Error(t, err)
	require.Error(t, ping(t, client, longTimeout))

	proxy.Restore()
	proxy.Restore()
	assert.Eventually(t, func() bool { return ping(t, client, longTimeout) == nil }, longTimeout, time.Millisecond)
}

func TestProxy_RestoreSucceedsWhileProcessesStart(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	proxy := redistest.StartProxy(t, "127.0.0.1:1")
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 4 {
		wg.Go(func() {
			for range 5 {
				cmd := exec.Command(program, "-test.list", "^$")
				cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
				assert.NoError(t, cmd.Run())
			}
		})
	}
	for range 200 {
		proxy.Cut()
		proxy.Restore()
	}
}

func TestProxy_StallDelaysData(t *testing.T) {
	proxy, client := startProxied(t)
	proxy.Stall()
	proxy.Stall()
	requireTimeout(t, ping(t, client, shortTimeout))

	conn, err := net.Dial("tcp", proxy.Addr)
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // only read from
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)

	proxy.Restore()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(longTimeout)))
	pong := make([]byte, len("+PONG\r\n"))
	_, err = io.ReadFull(conn, pong)
	require.NoError(t, err)
	assert.Equal(t, "+PONG\r\n", string(pong), "data sent during the stall must not be lost")
	assert.NoError(t, ping(t, client, longTimeout))
}

func TestProxy_StallRepliesForwardsCommands(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	client := server.Client(t, failFast, func(opts *redis.Options) { opts.Addr = proxy.Addr })
	require.NoError(t, ping(t, client, longTimeout)) // connects
	proxy.StallReplies()
	ctx, cancel := context.WithTimeout(t.Context(), shortTimeout)
	defer cancel()
	require.Error(t, client.Set(ctx, "key", "value", 0).Err())
	assert.Equal(t, "value", server.Client(t).Get(t.Context(), "key").Val())

	proxy.Restore()
	assert.NoError(t, ping(t, client, longTimeout))
}

func TestProxy_CutEndsStall(t *testing.T) {
	proxy, client := startProxied(t)
	proxy.Stall()
	requireTimeout(t, ping(t, client, shortTimeout))
	proxy.Cut()
	_, err := net.Dial("tcp", proxy.Addr)
	require.Error(t, err)
	proxy.Restore()
	assert.NoError(t, ping(t, client, longTimeout))
}

func TestProxy_Delay(t *testing.T) {
	proxy, client := startProxied(t)
	proxy.Delay(shortTimeout)
	start := time.Now()
	require.NoError(t, ping(t, client, longTimeout))
	assert.GreaterOrEqual(t, time.Since(start), shortTimeout)

	proxy.Delay(0)
	assert.NoError(t, ping(t, client, longTimeout))
}

func TestProxy_EndsWithItsTest(t *testing.T) {
	t.Run("stalled and delayed", func(t *testing.T) {
		proxy, client := startProxied(t)
		proxy.Delay(time.Hour)
		requireTimeout(t, ping(t, client, shortTimeout))
		proxy.Stall()
		requireTimeout(t, ping(t, client, shortTimeout))
	})
	assert.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !strings.Contains(string(stacks), "redistest.(*Proxy)")
	}, longTimeout, time.Millisecond)
}
