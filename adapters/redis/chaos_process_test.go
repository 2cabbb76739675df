package redis_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/limit"
)

// chaosKeys is how many buckets the processes share.
const chaosKeys = 2

// chaosTimeout is the deadline of each call of a process.
const chaosTimeout = 100 * time.Millisecond

// A chaosProcess is a process that consumes from shared buckets and changes its policy at random,
// until its standard input ends. It prints a line for every grant and every error.
type chaosProcess struct {
	AddrFile string // contains the address of the server
	Policies []limit.Policy
	First    int // index of the first policy

	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
}

const chaosEnv = "PENSTOCK_CHAOS_PROCESS"

// TestChaosProcess is the main function of such a process.
func TestChaosProcess(t *testing.T) {
	text := os.Getenv(chaosEnv)
	if text == "" {
		t.Skip("only runs as a child process of other tests")
	}
	var p chaosProcess
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	client := goredis.NewClient(&goredis.Options{
		Dialer:                p.dial,
		ContextTimeoutEnabled: true,
		DialTimeout:           chaosTimeout,
	})
	defer func() { _ = client.Close() }()
	c := chaosConsumer{
		policies: p.Policies,
		limiter:  redis.NewLimiter(client, p.Policies[p.First]),
		out:      os.Stdout,
	}
	c.both = limit.AllOf(c.limiter, redis.NewLimiter(client, limit.PerSecond(1_000_000).Named("generous")))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { assert.NoError(t, c.run(ctx)) })
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	cancel()
	wg.Wait()
	require.NoError(t, err)
}

// dial connects to the server whose address is in the file at present.
func (p *chaosProcess) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	addr, err := os.ReadFile(p.AddrFile)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{Timeout: chaosTimeout}).DialContext(ctx, network, string(addr))
}

// start starts the process. The goroutine that reads its output ends with the process.
func (p *chaosProcess) start(t *testing.T, log *chaosLog) {
	t.Helper()
	text, err := json.Marshal(p)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	p.cmd = exec.Command(self, "-test.run=^TestChaosProcess$", "-test.timeout=0")
	p.cmd.Env = append(os.Environ(), chaosEnv+"="+string(text))
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		log.read(stdout)
	}()
	t.Cleanup(func() {
		_ = p.stdin.Close()
		<-read
		assert.NoError(t, p.cmd.Wait(), "%s", &p.stderr)
	})
}

// A chaosConsumer makes random calls.
type chaosConsumer struct {
	policies []limit.Policy
	limiter  *redis.Limiter
	both     limit.Limiter // the limiter and a generous one

	mu  sync.Mutex // guards out
	out io.Writer
}

func (c *chaosConsumer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if rand.IntN(50) == 0 {
			if err := c.limiter.SetPolicy(c.policies[rand.IntN(len(c.policies))]); err != nil {
				return err
			}
		}
		key := rand.IntN(chaosKeys)
		sent := time.Now()
		tokens, err := c.call(ctx, limit.Key{"user", fmt.Sprint(key)})
		received := time.Now()
		if err == nil && tokens == 0 {
			time.Sleep(rand.N(5 * time.Millisecond))
			continue
		}
		kind := "grant"
		if err != nil {
			kind = "error"
		}
		if err := c.print(kind, key, tokens, sent.UnixNano(), received.UnixNano()); err != nil {
			return err
		}
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	return nil
}

func (c *chaosConsumer) print(values ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := fmt.Fprintln(c.out, values...)
	return err
}

// call returns how many tokens a random call was granted.
func (c *chaosConsumer) call(ctx context.Context, key limit.Key) (tokens int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, chaosTimeout)
	defer cancel()
	var d limit.Decision
	tokens = 1 + rand.Int64N(3)
	switch rand.IntN(6) {
	case 0:
		d, err = limit.ConsumeKeeping(ctx, c.limiter, key, tokens, 2)
	case 1:
		tokens, d, err = limit.ConsumeUpTo(ctx, c.limiter, key, 5)
	case 2:
		d, err = limit.Consume(ctx, c.both, key, tokens)
	case 3:
		if rand.IntN(10) == 0 {
			return 0, limit.Charge(ctx, c.limiter, key, 1) // takes tokens and grants none
		}
		fallthrough
	default:
		d, err = limit.Consume(ctx, c.limiter, key, tokens)
	}
	if err != nil || !d.Allowed {
		return 0, err
	}
	return tokens, nil
}

// A chaosLog contains what processes have printed. It is safe for concurrent use.
type chaosLog struct {
	mu     sync.Mutex
	grants [chaosKeys][]chaosGrant
	errors []chaosGrant
}

// A chaosGrant is a call of a process. The server decided at some time between sent and received,
// in nanoseconds since 1970.
type chaosGrant struct {
	tokens         int64
	sent, received int64
}

func (l *chaosLog) read(r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var kind string
		var key int
		var g chaosGrant
		if _, err := fmt.Sscan(lines.Text(), &kind, &key, &g.tokens, &g.sent, &g.received); err != nil {
			continue // a line of package testing
		}
		l.mu.Lock()
		if kind == "grant" {
			l.grants[key] = append(l.grants[key], g)
		} else {
			l.errors = append(l.errors, g)
		}
		l.mu.Unlock()
	}
}

// countGrants returns how many grants of all keys were sent after a time and received before
// another.
func (l *chaosLog) countGrants(after, before int64) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, grants := range l.grants {
		n += countWithin(grants, after, before)
	}
	return n
}

// countErrors does the same with errors.
func (l *chaosLog) countErrors(after, before int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return countWithin(l.errors, after, before)
}

func countWithin(grants []chaosGrant, after, before int64) (n int) {
	for _, g := range grants {
		if g.sent >= after && g.received <= before {
			n++
		}
	}
	return n
}
