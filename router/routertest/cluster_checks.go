//go:build !js

package routertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/wirecheck"
)

// The checks of a cluster that need no knowledge of the application. An observer sits above the HTTP transport of a
// client, where a connection over WebSocket and one over plain HTTP look the same.

// An observedTransport observes the connections that a client opens with it.
type observedTransport struct {
	http.RoundTripper

	cluster *Cluster
	host    string
}

type observedKey struct{}

// RoundTrip observes the connection of an upgraded response, unless another observedTransport above this one does.
func (t *observedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Context().Value(observedKey{}) != nil {
		return t.RoundTripper.RoundTrip(req)
	}
	resp, err := t.RoundTripper.RoundTrip(req.WithContext(context.WithValue(req.Context(), observedKey{}, true)))
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Extensions") != "" {
		return resp, err
	}
	if body, ok := resp.Body.(io.ReadWriteCloser); ok {
		resp.Body = t.cluster.observe(t.host, body)
	}
	return resp, nil
}

// An observedBody is a connection whose two directions are checked.
type observedBody struct {
	io.ReadWriteCloser

	cluster *Cluster
	host    string
	checks  *wirecheck.Conn
}

func (c *Cluster) observe(host string, body io.ReadWriteCloser) *observedBody {
	b := &observedBody{ReadWriteCloser: body, cluster: c, host: host}
	b.checks = wirecheck.New(wirecheck.Observer{
		Violation: func(text string) { c.problem("client %s: %s", host, text) },
		Loss:      func(topic, text string) { c.lossReported("client "+host, topic, text) },
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observed[b] = struct{}{}
	return b
}

// Read observes what the server has sent.
func (b *observedBody) Read(p []byte) (int, error) {
	n, err := b.ReadWriteCloser.Read(p)
	b.checks.Received(p[:n])
	if err != nil {
		b.end()
	}
	return n, err
}

// Write observes what the client sends before the server can answer it.
func (b *observedBody) Write(p []byte) (int, error) {
	b.checks.Sent(p)
	return b.ReadWriteCloser.Write(p)
}

// Close ends the observation.
func (b *observedBody) Close() error {
	b.end()
	return b.ReadWriteCloser.Close()
}

func (b *observedBody) end() {
	b.checks.End()
	b.cluster.mu.Lock()
	defer b.cluster.mu.Unlock()
	delete(b.cluster.observed, b)
}

// overdueSlack is how much later than its deadline an answer may arrive at a healed cluster.
const overdueSlack = 10 * time.Second

// outcomes returns the calls on open connections that have no outcome.
func (c *Cluster) outcomes() (problems []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := range c.observed {
		for _, text := range b.checks.Overdue(overdueSlack) {
			problems = append(problems, fmt.Sprintf("client %s: %s", b.host, text))
		}
	}
	return problems
}

// problem fails the test.
func (c *Cluster) problem(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("routertest: seed %d: after %v: "+format, append([]any{c.opts.Seed, time.Since(c.began).Round(time.Millisecond)}, args...)...)
}

// lossReported fails the test if a client or node was notified of a loss that no fault explains.
func (c *Cluster) lossReported(who, topic, text string) {
	if c.faultOccurred() || c.opts.MayLose != nil && c.opts.MayLose(topic) {
		return
	}
	c.problem("%s: topic %q: %s. The test has injected no fault, so nothing may be lost; if clients may miss more than the history of the topic has, say so with ClusterOptions.MayLose", who, topic, text)
}

// faultOccurred reports whether a fault was injected that may lose publications.
func (c *Cluster) faultOccurred() bool {
	for what := range c.Store.Occurred() {
		switch what {
		case "read before answer", "delivered before answer", "repeated delivery", "healed", "resumed": // also without a fault
		default:
			return true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faulty
}

// fault notes that a fault is injected.
func (c *Cluster) fault() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faulty = true
}

// An observedBroker is the store as a node reaches it. It checks the reports of lost messages.
type observedBroker struct {
	broker.HistoryBroker

	cluster *Cluster
	host    string
}

// Connect adds a node.
func (b observedBroker) Connect(h broker.Callbacks) broker.Node {
	return b.ConnectHistory(h, broker.HistoryCallbacks{})
}

// ConnectHistory adds a node.
func (b observedBroker) ConnectHistory(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
	report := h.Complete().MessagesLost
	h.MessagesLost = func(topic string, n int) {
		b.cluster.lossReported(b.host, topic, fmt.Sprintf("the store has reported %d lost messages (0: unknown), as Options.OnMessagesLost does", n))
		report(topic, n)
	}
	return b.HistoryBroker.ConnectHistory(h, hh)
}

// leaks returns what is left behind after all clients and nodes have ended.
func (c *Cluster) leaks() (problems []string) {
	usage := c.Store.Usage()
	if n := c.net.Conns(""); n > 0 {
		problems = append(problems, fmt.Sprintf("%d connections are open after all clients were closed and all nodes shut down; close what Cluster.Dial returns, and what the application hijacks", n))
	}
	if usage.Nodes > 0 {
		problems = append(problems, fmt.Sprintf("%d nodes are connected to the store after Shutdown; App.Shutdown must shut down the router", usage.Nodes))
	}
	if usage.WaitingCalls > 0 {
		problems = append(problems, fmt.Sprintf("%d calls of the store are waiting after all nodes have shut down", usage.WaitingCalls))
	}
	return problems
}
