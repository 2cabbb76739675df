package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/testscale"
)

const nodeArgs = "PENSTOCK_ORDERS_ARGS"

// TestMain runs a node instead of the tests if startNode has started this process.
func TestMain(m *testing.M) {
	if args := os.Getenv(nodeArgs); args != "" {
		os.Exit(command(context.Background(), strings.Fields(args), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// startNode starts a process, which is killed at the end of the test, and returns its address.
func startNode(t *testing.T, database string) (addr string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), nodeArgs+"=-addr=127.0.0.1:0 -postgres="+database)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_, err = fmt.Fscanf(bufio.NewReader(stdout), "orders: open http://%s\n", &addr)
	require.NoError(t, err)
	return addr
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

// orderID has the customer's number and that of the order.
func orderID(customer, n int) string {
	return fmt.Sprintf("00000000-0000-0000-%04x-%012x", customer, n)
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

// waitForPages returns the stored orders when the pages have as many.
func waitForPages(t *testing.T, pages []*page, database string) (stored map[string]bool) {
	t.Helper()
	assert.Eventually(t, func() bool {
		stored = storedOrders(t, database)
		return !slices.ContainsFunc(pages, func(p *page) bool { return len(p.seen()) < len(stored) })
	}, 30*time.Second, 20*time.Millisecond, "orders are missing on a page")
	return stored
}

// checkPages checks that pages have received each stored order once and no other, in one order, which is that of each customer.
func checkPages(t *testing.T, pages []*page, stored map[string]bool, placed [][]string) {
	t.Helper()
	seen := pages[0].seen()
	for i, p := range pages {
		assert.Empty(t, p.faults, "page %d", i)
		assert.Equal(t, seen, p.seen(), "page %d", i)
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(stored)), seen)
	for i, own := range placed {
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
	nodes := []string{startNode(t, database), startNode(t, database)}
	pages := []*page{openPage(t, nodes[0]), openPage(t, nodes[1])}
	perCustomer := testscale.Pick(25, 200)
	placed := make([][]string, 4) // by customer
	var running sync.WaitGroup
	for i := range placed {
		running.Go(func() {
			for n := range perCustomer {
				id := orderID(i, n)
				placed[i] = append(placed[i], id)
				assert.Equal(t, http.StatusCreated, putOrder(nodes[n%2], id))
				assert.Equal(t, http.StatusOK, putOrder(nodes[(n+i)%2], id), "sent again")
			}
		})
	}
	running.Wait()
	stored := waitForPages(t, pages, database)
	assert.Len(t, stored, perCustomer*len(placed))
	checkPages(t, pages, stored, placed)
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
