package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A node is a process. Its address remains when it is started again.
type node struct {
	addr  string
	cmd   *exec.Cmd
	ended chan struct{}
}

func startNode(t *testing.T, database, addr string, c crash) *node {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	n := &node{cmd: exec.Command(self), ended: make(chan struct{})}
	n.cmd.Stderr = os.Stderr
	n.cmd.Env = append(os.Environ(), nodeArgs+"=-addr="+addr+" -postgres="+database, nodeCrash+"=")
	if c.nth > 0 {
		n.cmd.Env = append(n.cmd.Env, nodeCrash+"="+c.String())
	}
	stdout, err := n.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, n.cmd.Start())
	t.Cleanup(n.kill)
	_, err = fmt.Fscanf(bufio.NewReader(stdout), "orders: open http://%s\n", &n.addr)
	require.NoError(t, err)
	go func() {
		_ = n.cmd.Wait()
		close(n.ended)
	}()
	return n
}

func (n *node) kill() {
	_ = n.cmd.Process.Signal(syscall.SIGKILL)
	<-n.ended
}

// endsWithin reports whether the node ends without being killed.
func (n *node) endsWithin(d time.Duration) bool {
	select {
	case <-n.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// A page records the orders that it receives.
type page struct {
	mu     sync.Mutex
	ids    []string
	faults []string
}

func openPage(t *testing.T, addr string) *page {
	t.Helper()
	p := &page{}
	c := client.New("ws://"+addr+"/ws", &client.Options{Backoff: client.Backoff{Min: 100 * time.Millisecond, Max: 200 * time.Millisecond}, Logger: discard})
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := c.Subscribe(ctx, topic, &client.SubscribeOptions{
		Handlers: []client.Handler{client.HandlerFor(func(o OrderPlaced, r *client.Received) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ids = append(p.ids, o.ID)
			if offset := int(r.Position.Offset); offset != len(p.ids) { //nolint:gosec // small
				p.faults = append(p.faults, fmt.Sprintf("order %d has offset %d", len(p.ids), offset))
			}
		})},
		OnLoss: func(l client.Loss) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.faults = append(p.faults, fmt.Sprintf("loss %+v", l))
		},
	})
	require.NoError(t, err)
	return p
}

func (p *page) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ids)
}

// A customer places one order after the other.
type customer struct {
	addrs  []string
	isSure bool // sends an order until it is answered; others give up after one attempt

	placed   []string // in order
	answered map[string]bool
}

// orderID has the customer's number and that of the order.
func orderID(customer, n int) string {
	return fmt.Sprintf("00000000-0000-0000-%04x-%012x", customer, n)
}

func (c *customer) run(number int, stop *atomic.Bool) {
	c.answered = map[string]bool{}
	for n := 0; !stop.Load(); n++ {
		id := orderID(number, n)
		c.placed = append(c.placed, id)
		for attempt := number; !c.answered[id]; attempt++ {
			status := putOrder(c.addrs[attempt%len(c.addrs)], id)
			c.answered[id] = status == http.StatusCreated || status == http.StatusOK
			if !c.isSure {
				break
			}
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // bounds the number of orders
	}
}

var httpClient = &http.Client{Timeout: 10 * time.Second}

// putOrder returns the status, 0 without an answer.
func putOrder(addr, id string) int {
	req, err := http.NewRequest(http.MethodPut, "http://"+addr+"/orders/"+id, strings.NewReader(`{"item":"book","quantity":1}`))
	if err != nil {
		panic(err)
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// crashes are around each statement of an order, and of the transaction that moves its publication to the
// history, which another node may do.
func crashes() (all []crash) {
	for _, statement := range []string{
		"begin", "INSERT INTO orders", `INSERT INTO "penstock".outbox`, "commit", "pg_notify",
		`DELETE FROM "penstock".outbox`, "; COMMIT",
	} {
		all = append(all, crash{statement: statement}, crash{statement: statement, after: true})
	}
	return all
}

func TestNodes_KilledNodeLosesAndInventsNoOrder(t *testing.T) {
	database := newDatabase(t)
	stable := startNode(t, database, "127.0.0.1:0", crash{})
	killed := startNode(t, database, freeport.Address(), crash{})
	pages := []*page{openPage(t, stable.addr), openPage(t, killed.addr)}
	customers := make([]*customer, 4)
	var stop atomic.Bool
	var running sync.WaitGroup
	defer running.Wait()
	defer stop.Store(true)
	for i := range customers {
		customers[i] = &customer{addrs: []string{killed.addr, stable.addr}, isSure: i%2 == 0}
		if i < 2 {
			customers[i].addrs = customers[i].addrs[:1] // those that wait for the node that was killed
		}
		running.Go(func() { customers[i].run(i, &stop) })
	}
	reached := map[string]int{} // by statement
	for range testscale.Pick(1, 10) {
		for _, c := range append(crashes(), crash{}) {
			killed.kill()
			c.nth = 1 + rand.Int64N(6)
			killed = startNode(t, database, killed.addr, c)
			if c.statement == "" { // between any two instructions
				_ = killed.endsWithin(time.Duration(rand.IntN(300)) * time.Millisecond)
			} else if killed.endsWithin(time.Second) {
				reached[c.statement]++
			}
			if len(pages[0].seen())-len(pages[1].seen()) > maxMissed/4 {
				killed.kill()
				killed = startNode(t, database, killed.addr, crash{})
				waitForPages(t, pages, database)
			}
		}
	}
	killed.kill()
	startNode(t, database, killed.addr, crash{})
	stop.Store(true)
	running.Wait()

	stored := waitForPages(t, pages, database)
	t.Logf("%d orders; moments at which a node was killed: %v", len(stored), reached)
	for _, statement := range []string{"begin", "INSERT INTO orders", `INSERT INTO "penstock".outbox`, "commit", "pg_notify"} {
		assert.Positive(t, reached[statement], "no node was killed at %q", statement)
	}
	for i, c := range customers {
		for _, id := range c.placed {
			assert.True(t, stored[id] || !c.answered[id], "customer %d: %s was answered, but is not stored", i, id)
			assert.True(t, c.answered[id] || !c.isSure, "customer %d: %s", i, id)
		}
	}
	checkPages(t, pages, stored, customers)
}

// waitForPages returns the stored orders when the pages have as many. A transaction of a killed node may commit
// after its end.
func waitForPages(t *testing.T, pages []*page, database string) (stored map[string]bool) {
	t.Helper()
	assert.Eventually(t, func() bool {
		stored = storedOrders(t, database)
		return !slices.ContainsFunc(pages, func(p *page) bool { return len(p.seen()) < len(stored) })
	}, 30*time.Second, 20*time.Millisecond, "orders are missing on a page")
	return stored
}

// checkPages checks that pages have received each stored order once and no other, in the same order.
func checkPages(t *testing.T, pages []*page, stored map[string]bool, customers []*customer) {
	t.Helper()
	for i, p := range pages {
		assert.Empty(t, p.faults, "page %d", i)
		seen := p.seen()
		times := map[string]int{}
		for _, id := range seen {
			times[id]++
			assert.True(t, stored[id], "page %d shows %s, which is not stored", i, id)
		}
		for id := range stored {
			assert.Equal(t, 1, times[id], "page %d: %s", i, id)
		}
		assert.Equal(t, pages[0].seen(), seen, "page %d", i)
	}
	seen := pages[0].seen()
	for i, c := range customers {
		own := slices.DeleteFunc(slices.Clone(c.placed), func(id string) bool { return !stored[id] })
		if !c.isSure { // an order without an answer may commit after a later one
			own = slices.DeleteFunc(own, func(id string) bool { return !c.answered[id] })
		}
		ofCustomer := slices.DeleteFunc(slices.Clone(seen), func(id string) bool { return !slices.Contains(own, id) })
		assert.Equal(t, own, ofCustomer, "customer %d", i)
	}
}

func storedOrders(t *testing.T, database string) map[string]bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	defer conn.Close(context.Background()) //nolint:errcheck // it was read
	rows, err := conn.Query(t.Context(), "SELECT id::text FROM orders")
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	stored := map[string]bool{}
	for _, id := range ids {
		stored[id] = true
	}
	return stored
}

func TestNodes_PagesSeeEveryOrderOnceAndInOrder(t *testing.T) {
	database := newDatabase(t)
	nodes := []*node{startNode(t, database, "127.0.0.1:0", crash{}), startNode(t, database, "127.0.0.1:0", crash{})}
	pages := []*page{openPage(t, nodes[0].addr), openPage(t, nodes[1].addr)}
	perCustomer := testscale.Pick(25, 200)
	customers := make([]*customer, 4)
	var running sync.WaitGroup
	for i := range customers {
		customers[i] = &customer{isSure: true}
		running.Go(func() {
			for n := range perCustomer {
				id := orderID(i, n)
				customers[i].placed = append(customers[i].placed, id)
				assert.Equal(t, http.StatusCreated, putOrder(nodes[n%2].addr, id))
				assert.Equal(t, http.StatusOK, putOrder(nodes[(n+i)%2].addr, id), "sent again")
			}
		})
	}
	running.Wait()
	stored := waitForPages(t, pages, database)
	assert.Len(t, stored, perCustomer*len(customers))
	checkPages(t, pages, stored, customers)
}

func TestCommand_WrongFlagsAndUnreachableDatabase(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close()) // nothing listens there now
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"extra":           {2, `unexpected argument "extra"`},
		"-postgres=x://y": {2, "-postgres must be a URL such as postgres://user:password@localhost:5432/shop"},
		"-postgres=postgres://" + listener.Addr().String() + "/shop": {1, "connect"},
	} {
		var stderr strings.Builder
		assert.Equal(t, want.code, command(t.Context(), []string{args}, &strings.Builder{}, &stderr), args)
		assert.Contains(t, stderr.String(), want.text)
	}
}
