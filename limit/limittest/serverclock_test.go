package limittest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit/limittest/serverclock"
)

// TestClock_IsThatOfAnotherProgram asks date, a program that measures nothing itself.
func TestClock_IsThatOfAnotherProgram(t *testing.T) {
	at := time.Date(2028, 12, 31, 23, 59, 59, 123_456_000, time.UTC)
	clock := serverclock.New(t, at)
	date := func() string {
		cmd := exec.Command("date", "-u", "+%s.%N")
		cmd.Env = append(os.Environ(), clock.Env()...)
		output, err := cmd.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(output))
	}
	assert.Equal(t, "1861919999.123456000", date())
	clock.Sleep(time.Microsecond)
	assert.Equal(t, "1861919999.123457000", date())
	assert.Equal(t, at.Add(time.Microsecond), clock.Now().UTC())
	clock.Set(time.Unix(7, 0))
	assert.Equal(t, "7.000000000", date())
}

// TestClock_MovesRedis also looks at what the time of day decides in Redis: when keys expire.
func TestClock_MovesRedis(t *testing.T) {
	at := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	clock := serverclock.New(t, at)
	client := redistest.StartWithEnv(t, clock.Env()).Client(t)
	now := func() time.Time {
		at, err := client.Time(t.Context()).Result()
		require.NoError(t, err)
		return at.UTC()
	}
	assert.Equal(t, at, now())
	require.NoError(t, client.Set(t.Context(), "month", "", 31*24*time.Hour).Err())
	require.NoError(t, client.Set(t.Context(), "year", "", 366*24*time.Hour).Err())
	clock.Sleep(31*24*time.Hour - time.Millisecond)
	assert.EqualValues(t, 2, client.Exists(t.Context(), "month", "year").Val())
	clock.Sleep(2 * time.Millisecond)
	assert.EqualValues(t, 1, client.Exists(t.Context(), "month", "year").Val())
	clock.Set(at)
	assert.Equal(t, at, now())
	script := `local t = redis.call('TIME') return t[1] * 1000000 + t[2]`
	clock.Sleep(time.Microsecond)
	micros, err := client.Eval(t.Context(), script, nil).Int64()
	require.NoError(t, err)
	assert.Equal(t, at.UnixMicro()+1, micros)
}
