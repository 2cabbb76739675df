package redis

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// A leaseProcess is what a process needs that takes a lease.
type leaseProcess struct {
	Addr, Prefix string // of the server, and of the limiter's buckets
	Key          limit.Key
	Take         limit.Take
}

const leaseEnv = "PENSTOCK_LEASE_PROCESS"

// TestLeaseProcess is the main function of such a process. It prints the receipt, and works until its
// standard input ends.
func TestLeaseProcess(t *testing.T) {
	text := os.Getenv(leaseEnv)
	if text == "" {
		t.Skip("only runs as a child process of other tests")
	}
	var p leaseProcess
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	client := goredis.NewClient(&goredis.Options{Addr: p.Addr})
	defer func() { _ = client.Close() }()
	l := NewLimiter(client, limit.PerMinute(6).Burst(10).Named("lease"))
	l.buckets.prefix = p.Prefix
	d, err := l.Take(t.Context(), p.Key, p.Take)
	require.NoError(t, err)
	require.NoError(t, json.NewEncoder(os.Stdout).Encode(d.Receipt))
	_, err = io.Copy(io.Discard, os.Stdin)
	require.NoError(t, err)
}

// crash returns the receipt of a process that takes a lease and is killed.
func (p *leaseProcess) crash(t *testing.T) limit.Receipt { return crash(t, "TestLeaseProcess", p) }

// crash runs a test, with a value in leaseEnv, in a process that prints a receipt and is killed then.
func crash(t *testing.T, test string, p any) (receipt limit.Receipt) {
	text, err := json.Marshal(p)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), leaseEnv+"="+string(text))
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	decodeErr := json.NewDecoder(stdout).Decode(&receipt)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.NoError(t, decodeErr)
	return receipt
}

// TestLease_ReturnsAfterCrash kills processes that have reserved tokens and not settled.
func TestLease_ReturnsAfterCrash(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	addr := m.client.(*goredis.Client).Options().Addr
	b := newLeaseBench(t, m)
	reserve := func(length time.Duration) limit.Receipt {
		p := leaseProcess{addr, b.buckets.prefix, b.key, limit.Take{Cost: 6, Lease: length, Receipt: true}}
		return p.crash(t)
	}
	reserve(30 * time.Second)
	b.lacks(time.Minute, "the process has reserved")
	m.sleep(30*time.Second - time.Microsecond)
	b.lacks(30*time.Second+time.Microsecond, "before the end of the lease")
	m.sleep(time.Microsecond)
	b.lacks(0, "at its end, the rest has returned")

	receipt := reserve(30 * time.Second)
	assert.NotZero(t, receipt.Lease)
	m.sleep(10 * time.Second)
	b.settle(receipt, 3)
	b.lacks(20*time.Second, "another process has settled")
	m.sleep(20 * time.Second)
	b.lacks(0, "nothing returns twice")
}

// A meterProcess is what a process needs that reserves an estimate from a bucket and a quota.
type meterProcess struct {
	Addr string
	Now  time.Time
	Key  limit.Key
}

// meter returns the meter of a process, with its limiters.
func (p *meterProcess) meter(client goredis.UniversalClient) (*limit.Meter, *Limiter, *CountLimiter[limit.QuotaPolicy]) {
	bucket := NewLimiter(client, limit.PerMinute(6).Burst(20).Named("meter"))
	quota := NewQuota(client, limit.QuotaPolicy{Name: "meter", Max: 10, Period: limit.Hour})
	quota.records.clock = func() time.Time { return p.Now }
	return limit.NewMeter(30*time.Second, bucket, quota), bucket, quota
}

// TestMeterProcess is the main function of such a process.
func TestMeterProcess(t *testing.T) {
	text := os.Getenv(leaseEnv)
	if text == "" {
		t.Skip("only runs as a child process of other tests")
	}
	var p meterProcess
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	client := goredis.NewClient(&goredis.Options{Addr: p.Addr})
	defer func() { _ = client.Close() }()
	meter, _, _ := p.meter(client)
	d, err := meter.Reserve(t.Context(), 6, p.Key)
	require.NoError(t, err)
	require.NoError(t, json.NewEncoder(os.Stdout).Encode(d.Receipt))
	_, err = io.Copy(io.Discard, os.Stdin)
	require.NoError(t, err)
}

// TestMeter_EstimateOfKilledProcessReturns kills processes between Reserve and Settle.
func TestMeter_EstimateOfKilledProcessReturns(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	p := meterProcess{m.client.(*goredis.Client).Options().Addr, m.server.Now(), limit.Key{"user", "ann"}}
	meter, bucket, quota := p.meter(m.client)
	bucket.buckets.now, quota.records.now = m.now, m.now
	holds := func(inBucket, inQuota int64, why string) {
		t.Helper()
		for l, want := range map[limit.Limiter]int64{bucket: inBucket, quota: inQuota} {
			d, err := limit.Inspect(t.Context(), l, p.Key)
			require.NoError(t, err)
			assert.Equal(t, want, d.Remaining, why)
		}
	}
	crash(t, "TestMeterProcess", &p)
	holds(14, 4, "the process has reserved")
	m.sleep(30*time.Second - time.Microsecond)
	holds(16, 4, "before the end of the lease")
	m.sleep(time.Microsecond)
	holds(20, 10, "at its end")

	receipt := crash(t, "TestMeterProcess", &p)
	require.NoError(t, meter.Settle(t.Context(), receipt, 9, p.Key))
	holds(11, 1, "another process has settled")
	m.sleep(30 * time.Second)
	holds(14, 1, "nothing returns twice")
}
