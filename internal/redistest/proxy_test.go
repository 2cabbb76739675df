package redistest_test

import (
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

// behind returns a proxy in front of a new server, and a client of the proxy.
func behind(t *testing.T) (*redistest.Proxy, *redis.Client) {
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	opts := &redis.Options{Addr: proxy.Addr}
	impatient(opts)
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, ping(t, client, long))
	return proxy, client
}

func TestProxyCuts(t *testing.T) {
	proxy, client := behind(t)
	conn, err := net.Dial("tcp", proxy.Addr)
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // it is broken on purpose

	proxy.Cut()
	proxy.Cut()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(long)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = net.Dial("tcp", proxy.Addr)
	require.Error(t, err)
	require.Error(t, ping(t, client, long))

	proxy.Mend()
	proxy.Mend()
	assert.Eventually(t, func() bool { return ping(t, client, long) == nil }, long, time.Millisecond)
}

func TestProxyMendsWhileProcessesStart(t *testing.T) {
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
		proxy.Mend()
	}
}

func TestProxyStalls(t *testing.T) {
	proxy, client := behind(t)
	proxy.Stall()
	proxy.Stall()
	requireTimeout(t, ping(t, client, soon))

	conn, err := net.Dial("tcp", proxy.Addr)
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // only read from
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)

	proxy.Mend()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(long)))
	pong := make([]byte, len("+PONG\r\n"))
	_, err = io.ReadFull(conn, pong)
	require.NoError(t, err)
	assert.Equal(t, "+PONG\r\n", string(pong), "what was sent during the stall is not lost")
	assert.NoError(t, ping(t, client, long))
}

func TestProxyCutsWhatIsStalled(t *testing.T) {
	proxy, client := behind(t)
	proxy.Stall()
	requireTimeout(t, ping(t, client, soon))
	proxy.Cut()
	_, err := net.Dial("tcp", proxy.Addr)
	require.Error(t, err)
	proxy.Mend()
	assert.NoError(t, ping(t, client, long))
}

func TestProxyDelays(t *testing.T) {
	proxy, client := behind(t)
	proxy.Delay(soon)
	start := time.Now()
	require.NoError(t, ping(t, client, long))
	assert.GreaterOrEqual(t, time.Since(start), soon)

	proxy.Delay(0)
	assert.NoError(t, ping(t, client, long))
}

func TestProxyEndsWithItsTest(t *testing.T) {
	t.Run("stalled and delayed", func(t *testing.T) {
		proxy, client := behind(t)
		proxy.Delay(time.Hour)
		requireTimeout(t, ping(t, client, soon))
		proxy.Stall()
		requireTimeout(t, ping(t, client, soon))
	})
	assert.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !strings.Contains(string(stacks), "redistest.(*Proxy)")
	}, long, time.Millisecond)
}
