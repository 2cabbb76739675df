package redistest_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
)

func TestStart_FailureContainsServerOutput(t *testing.T) {
	redistest.Start(t) // skips the test without redis-server
	text := resultOf(t, func(t testing.TB) { redistest.Start(t, "--maxmemory", "much") })
	assert.True(t, strings.HasPrefix(text, "fail: "), text)
	assert.Contains(t, text, `maxmemory "much"`)
}

func TestServer_HasCommand(t *testing.T) {
	s := redistest.Start(t)
	assert.True(t, s.HasCommand(t, "wait"))
	assert.False(t, s.HasCommand(t, "await"))
}

// TestServer_EndsWithCrashedTestBinary runs itself in a child process that ends without cleanup.
func TestServer_EndsWithCrashedTestBinary(t *testing.T) {
	if os.Getenv("REDISTEST_CRASH") != "" {
		addrs := []string{redistest.Start(t).Addr, redistest.Shared(t).Options().Addr}
		_, _ = os.Stdout.WriteString(strings.Join(addrs, "\n"))
		os.Exit(3)
	}
	redistest.Start(t) // skips the test without redis-server
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "REDISTEST_CRASH=1", "REDIS_URL=")
	out, err := cmd.Output()
	require.ErrorContains(t, err, "exit status 3")
	addrs := strings.Fields(string(out))
	require.Len(t, addrs, 2)
	for _, addr := range addrs {
		assert.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		}, longTimeout, time.Millisecond)
	}
}
