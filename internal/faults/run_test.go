//go:build unix

package faults_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
)

// A run is a cluster of node processes with one fault.
type run struct {
	t       *testing.T
	full    bool
	lasts   time.Duration // how long the fault lasts, if it has a duration
	log     *record
	nodes   []*process
	spec    nodeSpec                    // of the next node
	proxies map[string]*redistest.Proxy // of the nodes, on a single server

	server   *redistest.Server // a single one
	sentinel *redistest.Sentinel
	servers  []*redistest.Server // of a cluster: the masters, then their replicas

	began   int64
	ended   int64   // recovery is measured from here
	settled int64   // the convergence of presence is measured from here
	effect  string  // a count that shows that the fault took effect
	allowed float64 // tokens that may be granted in addition to the bound
	killed  string  // name of a node

	lossless bool // no message may be lost
}

const wait = time.Minute // of everything that must happen at some time

// startRun starts nodes and waits until each of them receives from all.
func startRun(t *testing.T, kind redisKind, lasts time.Duration, full bool) *run {
	r := &run{t: t, full: full, lasts: lasts, log: newRecord(), proxies: map[string]*redistest.Proxy{}, spec: nodeSpec{Kind: kind}}
	switch kind {
	case single:
		r.server = redistest.Start(t, users()...)
	case sentinel:
		r.sentinel = redistest.StartSentinel(t)
		r.sentinel.Client(t, func(opts *goredis.FailoverOptions) {
			r.spec.Addrs, r.spec.Master = opts.SentinelAddrs, opts.MasterName
		})
	case cluster:
		r.servers, r.spec.Addrs = startCluster(t)
	}
	for n := range r.pick(3, 4) {
		r.startNode(fmt.Sprint("node", n))
	}
	r.awaitDeliveries()
	time.Sleep(500 * time.Millisecond)
	r.began = now()
	return r
}

// pick returns the value for the short or the full form.
func (r *run) pick(short, full int) int {
	if r.full {
		return full
	}
	return short
}

// users returns the arguments of a server that has a user for each node.
func users() (args []string) {
	for n := range 5 {
		name := fmt.Sprint("node", n)
		args = append(args, "--user", name, "on", ">"+name, "~*", "&*", "+@all")
	}
	return args
}

func (r *run) startNode(name string) {
	spec := r.spec
	spec.Name = name
	if r.server != nil {
		proxy := redistest.StartProxy(r.t, r.server.Addr)
		r.proxies[name] = proxy
		spec.Username, spec.Addrs = name, []string{proxy.Addr}
	}
	r.nodes = append(r.nodes, startProcess(r.t, &spec, r.log))
}

// living returns the nodes that no fault has ended.
func (r *run) living() (nodes []*process, names []string) {
	for _, n := range r.nodes {
		if !n.ended {
			nodes, names = append(nodes, n), append(names, n.name)
		}
	}
	return nodes, names
}

// awaitDeliveries waits until every node receives what every other one publishes from now on.
func (r *run) awaitDeliveries() {
	r.t.Helper()
	_, names := r.living()
	after := now()
	r.await("deliveries between all nodes", func() bool { return r.log.receivesAll(names, after) })
}

func (r *run) await(what string, done func() bool) {
	r.t.Helper()
	if !assert.Eventually(r.t, done, wait, 20*time.Millisecond) {
		for _, n := range r.nodes {
			_ = n.cmd.Process.Kill()
			<-n.read
			_ = n.cmd.Wait()
			r.t.Logf("%s: %s", n.name, &n.stderr)
		}
		require.Fail(r.t, "no "+what)
	}
}

// end marks the end of the fault.
func (r *run) end() {
	r.ended = now()
	r.settle()
}

// settle ends the changes of presence.
func (r *run) settle() {
	r.settled = now()
	nodes, _ := r.living()
	for _, n := range nodes {
		n.command(r.t, "settle")
	}
}

// tookEffect records a count that shows the effect of the fault.
func (r *run) tookEffect(ok bool, format string, args ...any) {
	r.effect = fmt.Sprintf(format, args...)
	assert.True(r.t, ok, "the fault had no effect: %s", r.effect)
}

// underWay is how long messages may be under way when a fault begins, in nanoseconds.
const underWay = int64(time.Second)

// isolated requires that nodes have received nothing of the others since the fault began, apart
// from what was under way.
func (r *run) isolated(nodes []*process) {
	after, before := r.began+underWay, now()
	published, received := 0, 0
	for _, to := range nodes {
		received += r.log.deliveredTo(to.name, "", after, before)
		for _, from := range r.nodes {
			if from != to {
				published += r.log.publishedBy(from.name, after, before)
			}
		}
	}
	r.tookEffect(published > 0 && received == 0, "%s of %s arrived", thousands(received), thousands(published))
}

// finish waits until the nodes have recovered, ends them and returns the result.
func (r *run) finish(name string) result {
	r.awaitDeliveries()
	nodes, names := r.living()
	r.await("convergence of presence", func() bool {
		_, err := r.log.convergedAfter(names, r.settled)
		return err == nil
	})
	time.Sleep(time.Duration(r.pick(2, 5)) * time.Second) // later losses would be found, too
	for _, n := range nodes {
		n.command(r.t, "stop")
	}
	time.Sleep(2500 * time.Millisecond) // for the last reports
	r.log.close()
	for _, n := range nodes {
		n.finish(r.t)
	}
	return r.result(name, names)
}

// result checks what the nodes that are alive have recorded.
func (r *run) result(name string, names []string) result {
	assert.Empty(r.t, r.log.invalid)
	losses := r.log.countLosses(names, r.killed)
	assert.Empty(r.t, losses.unreported[:min(len(losses.unreported), 10)], "%d losses were not reported", len(losses.unreported))
	if r.lossless {
		assert.Zero(r.t, losses.lost, "messages were lost")
	}
	assert.Zero(r.t, losses.duplicated, "messages were repeated or reordered")
	assert.Positive(r.t, losses.messages)
	assert.LessOrEqual(r.t, losses.perTopic, 4, "reports of one fault, for one topic on one node")
	excess, grants := r.log.limitExcess()
	assert.LessOrEqual(r.t, excess, r.allowed, "tokens above the bound, in %d grants", grants)
	assert.Greater(r.t, grants, int(policy.Capacity))
	converged, err := r.log.convergedAfter(names, r.settled)
	require.NoError(r.t, err)
	recovered, err := r.log.recoveredAfter(names, r.ended)
	require.NoError(r.t, err)
	bound := 20 * time.Second
	if r.full {
		bound = 5 * time.Second
	}
	assert.LessOrEqual(r.t, converged, bound, "until presence converged")
	assert.LessOrEqual(r.t, recovered, bound, "until messages arrived again")
	return result{name, r.effect, excess, r.allowed, grants, losses, converged, recovered}
}
