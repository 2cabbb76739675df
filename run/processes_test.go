//go:build unix

package run_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// This file runs processes with a router each on a real Redis. Readers move between them while they receive
// the numbered items of runs, and a fault is injected.

var update = flag.String("run.update", "", "the file whose table of faults of runs is replaced")

// A processFault is injected once the runs have begun.
type processFault struct {
	name     string
	sentinel bool
	harms    bool // it ends the runs of the first node
	inject   func(*cluster)
}

var processFaults = []processFault{
	{name: "owner killed", harms: true, inject: killOwner},
	{name: "owner stopped for 5 s longer than the lease", harms: true, inject: stopOwner},
	{name: "connections of all nodes to Redis cut five times for 0.3 s", inject: cutConnections},
	{name: "Redis killed, empty after 1 s", inject: restartRedis},
	{name: "Redis killed, after 1 s as it was 1 s before", inject: loseTail},
	{name: "Redis paused for 1.5 s", inject: pauseRedis},
	{name: "failover by Sentinel, old master alive", sentinel: true, inject: failOver},
}

// lease returns that of the runs: the shortest one if the fault ends runs, because readers then wait for
// its end, and otherwise the default, so that a slow machine ends none.
func (f *processFault) lease() time.Duration {
	if f.harms {
		return size(3*time.Second, 10*time.Second)
	}
	return 10 * time.Second
}

// A cluster is three nodes, with a fault.
type cluster struct {
	t        *testing.T
	lease    time.Duration // of the runs
	nodes    []*nodeProcess
	server   *redistest.Server
	sentinel *redistest.Sentinel
	proxies  []*redistest.Proxy
	runs     []*loadRun
	readers  sync.WaitGroup
	harmed   time.Time // when the fault has begun that ends runs
}

// TestProcesses_EveryReaderReceivesEveryItemOnce injects faults into clusters of their own, and logs a table of the
// results. The quick tier has one fault that ends runs, and one that does not, and the full tier all of them. Their full
// size runs if PENSTOCK_TESTS is a duration, and needs the whole machine.
func TestProcesses_EveryReaderReceivesEveryItemOnce(t *testing.T) {
	if testscale.Pick(true, false) {
		t.Parallel()
	}
	redistest.Start(t) // skips the test without redis-server
	faults := testscale.Pick([]processFault{processFaults[0], processFaults[4]}, processFaults)
	results := make([]processResult, len(faults))
	t.Run("all", func(t *testing.T) {
		for i, f := range faults {
			t.Run(f.name, func(t *testing.T) {
				if testscale.Pick(true, false) {
					t.Parallel()
				}
				results[i] = runFault(t, &f)
			})
		}
	})
	text := processTable(results)
	t.Log("\n" + text)
	if *update != "" && !t.Failed() {
		require.Len(t, results, len(processFaults), "the table needs all faults: use PENSTOCK_TESTS=1h")
		require.NoError(t, updateTable(*update, text))
	}
}

func runFault(t *testing.T, f *processFault) processResult {
	c := startCluster(t, f)
	runs, items, readers := size(6, 50), size(300, 2000), size(3, 10)
	every := size(10*time.Millisecond, 40*time.Millisecond)
	for i := range runs {
		c.startRun(i, items, every)
	}
	for _, r := range c.runs {
		for range readers {
			c.readers.Go(func() { c.read(r) })
		}
	}
	time.Sleep(time.Duration(items) * every / 4) // the runs are in their course
	f.inject(c)
	c.readers.Wait()
	return c.result(f, items, readers)
}

// startCluster starts Redis and the nodes.
func startCluster(t *testing.T, f *processFault) *cluster {
	c := &cluster{t: t, lease: f.lease()}
	if f.sentinel {
		c.sentinel = redistest.StartSentinel(t)
	} else {
		c.server = redistest.Start(t)
	}
	for range 3 {
		var address redistest.Address
		if f.sentinel {
			address = c.sentinel.Address()
		} else {
			proxy := redistest.StartProxy(t, c.server.Addr)
			c.proxies = append(c.proxies, proxy)
			address.Addr = proxy.Addr
		}
		c.nodes = append(c.nodes, startNodeProcess(t, nodeConfig{address, c.lease}))
	}
	return c
}

// startRun starts a run on one of the nodes in turn.
func (c *cluster) startRun(i, items int, every time.Duration) {
	r := &loadRun{topic: fmt.Sprint("load/", i), owner: i % len(c.nodes), items: items}
	text := c.nodes[r.owner].post(c.t, "/start", url.Values{
		"topic": {r.topic}, "items": {fmt.Sprint(items)}, "every": {every.String()},
	})
	r.id, _, _ = strings.Cut(text, " ")
	c.runs = append(c.runs, r)
}

func killOwner(c *cluster) {
	c.harmed = time.Now()
	c.nodes[0].kill(c.t)
}

func stopOwner(c *cluster) {
	c.harmed = time.Now()
	c.nodes[0].signal(c.t, syscall.SIGSTOP)
	time.Sleep(c.lease + 5*time.Second)
	c.nodes[0].signal(c.t, syscall.SIGCONT)
}

func cutConnections(c *cluster) {
	for range 5 {
		for _, p := range c.proxies {
			p.Cut()
		}
		time.Sleep(300 * time.Millisecond)
		for _, p := range c.proxies {
			p.Restore()
		}
		time.Sleep(time.Second)
	}
}

func restartRedis(c *cluster) {
	c.server.Stop()
	time.Sleep(time.Second)
	c.server.Restart()
}

// loseTail does what a failover to a replica does that lacks the last second.
func loseTail(c *cluster) {
	require.NoError(c.t, c.server.Client(c.t).Save(c.t.Context()).Err())
	time.Sleep(time.Second)
	c.server.Stop()
	time.Sleep(time.Second)
	c.server.Restart()
	keys, err := c.server.Client(c.t).DBSize(c.t.Context()).Result()
	require.NoError(c.t, err)
	assert.Positive(c.t, keys, "the server has its older data")
}

func pauseRedis(c *cluster) {
	c.server.Pause()
	time.Sleep(1500 * time.Millisecond)
	c.server.Resume()
}

func failOver(c *cluster) {
	old := c.sentinel.Master
	c.sentinel.Promote(c.t)
	assert.NotSame(c.t, old, c.sentinel.Master)
}

// A nodeProcess is a node, as the coordinator sees it.
type nodeProcess struct {
	url    string
	cmd    *exec.Cmd
	stderr bytes.Buffer
	read   chan struct{} // closed when its output has ended
}

// startNodeProcess starts a node, and returns when it listens.
func startNodeProcess(t *testing.T, config nodeConfig) *nodeProcess {
	t.Helper()
	text, err := json.Marshal(config)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	p := &nodeProcess{read: make(chan struct{})}
	p.cmd = exec.Command(self, "-test.run=^TestProcessNode$", "-test.timeout=0")
	p.cmd.Env = append(os.Environ(), nodeEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // see internal/faults
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	stdin, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	listening := make(chan string, 1)
	go func() {
		defer close(p.read)
		defer close(listening)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if address, ok := strings.CutPrefix(lines.Text(), "listening "); ok {
				listening <- address
			}
		}
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = p.cmd.Process.Kill() // even if the process is stopped
		<-p.read
		_ = p.cmd.Wait()
	})
	p.url = <-listening
	require.NotEmpty(t, p.url, "the node does not listen: %s", &p.stderr)
	return p
}

// post calls the node, and returns its answer.
func (p *nodeProcess) post(t *testing.T, path string, values url.Values) string {
	t.Helper()
	response, err := http.PostForm(p.url+path, values)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(text))
	return string(text)
}

func (p *nodeProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

func (p *nodeProcess) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.read
}

// result checks what the readers have received.
func (c *cluster) result(f *processFault, items, readers int) processResult {
	res := processResult{fault: f.name, runs: len(c.runs), readers: readers, items: items}
	for _, r := range c.runs {
		assert.Len(c.t, r.ends, readers, "readers of %s that have reached an end", r.topic)
		first := r.ends[0]
		harmed := f.harms && r.owner == 0
		state := "completed"
		if harmed {
			state = "interrupted"
			res.interrupted++
			// A reader whose node is stopped notices nothing until it moves.
			assert.LessOrEqual(c.t, r.latest.Sub(c.harmed), c.lease+2*time.Second+stay()+busy, "until the last reader of %s has seen its end", r.topic)
			res.latest = max(res.latest, r.latest.Sub(c.harmed))
		} else {
			assert.EqualValues(c.t, items, first.Items, "items of %s", r.topic)
			res.pause = max(res.pause, r.pause)
		}
		assert.Equal(c.t, state, first.State, r.topic)
		for _, end := range r.ends {
			assert.Equal(c.t, first, end, "every reader of %s sees the same end", r.topic)
		}
		for _, n := range r.received {
			assert.EqualValues(c.t, first.Items, n, "items that a reader of %s has received", r.topic)
			res.received += int(n)
		}
		assert.Zero(c.t, r.wrong, "items of %s that are repeated, reordered or wrong", r.topic)
		res.wrong += r.wrong
	}
	if f.harms {
		c.checkZombies(f)
	}
	return res
}

// busy is how much later the end of an interrupted run may be seen on a busy machine, or by a reader that moves to
// the stopped node again: the table has the measured time.
const busy = 5 * time.Second

// checkZombies requires that the runs of a node that was replaced have no more items than their readers have
// received.
func (c *cluster) checkZombies(f *processFault) {
	time.Sleep(size(200*time.Millisecond, 2*time.Second)) // it has appended what it wants to
	for _, r := range c.runs {
		again := &loadRun{topic: r.topic, id: r.id, items: r.items}
		c.read(again)
		assert.Equal(c.t, r.ends[:1], again.ends, "the end of %s after: %s", r.topic, f.name)
		assert.Equal(c.t, r.received[:1], again.received, "the items of %s after: %s", r.topic, f.name)
	}
}

// alive returns the URLs of the nodes that can be reached.
func (c *cluster) alive() (urls []string) {
	for _, n := range c.nodes {
		select {
		case <-n.read:
		default:
			urls = append(urls, n.url)
		}
	}
	return slices.Clip(urls)
}
