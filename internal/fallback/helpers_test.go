package fallback_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/simnet"
	"github.com/penstock-go/penstock/router"
)

// serveInMemory serves a handler with net/http until the test ends, in a bubble of synctest, and returns a client whose
// requests it answers, whatever their host. They have no address.
func serveInMemory(t *testing.T, server *http.Server) *http.Client {
	t.Helper()
	address := ""
	server.Handler = withAddress(server.Handler, &address)
	client, _ := serveSockets(t, server)
	return client
}

// serveSockets is serveInMemory with the addresses of a network, and returns also what dials a socket.
func serveSockets(t *testing.T, server *http.Server) (client *http.Client, dial func() net.Conn) {
	t.Helper()
	network := simnet.New(1, simnet.Links{Window: 4 << 10})
	listener := network.Listen("server")
	go func() { _ = server.Serve(listener) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return network.Dial(ctx, "client", "server")
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		time.Sleep(time.Minute) // connections without a client end
	})
	return &http.Client{Transport: transport}, func() net.Conn { return must(network.Dial(t.Context(), "client", "server")) }
}

// withAddress returns a handler whose requests come from an address, which may change between two; "" is unknown.
func withAddress(h http.Handler, address *string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req.RemoteAddr = *address
		h.ServeHTTP(w, req)
	})
}

// A client speaks the protocol's section 15, like one that is written from it.
type client struct {
	t      *testing.T
	do     func(*http.Request) (*http.Response, error)
	url    string
	header http.Header

	secret string
	seq    uint64
	ack    uint64
}

// newClient returns a client of a handler.
func newClient(t *testing.T, h http.Handler) *client {
	t.Helper()
	return clientOf(t, serveInMemory(t, &http.Server{Handler: h}).Do)
}

func clientOf(t *testing.T, do func(*http.Request) (*http.Response, error)) *client {
	t.Helper()
	return &client{t: t, do: do, url: "http://example.com/ws/http", header: http.Header{}}
}

// post sends a request. The caller closes the body.
func (c *client) post(operation, body string) *http.Response {
	c.t.Helper()
	resp, err := c.try(c.t.Context(), operation, body)
	require.NoError(c.t, err)
	return resp
}

func (c *client) try(ctx context.Context, operation, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"?"+operation, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.header)
	req.Header.Set("Content-Type", "text/plain;charset=UTF-8")
	return c.do(req)
}

// An sseEvent is an event of a response.
type sseEvent struct {
	name string
	id   uint64
	data string
}

// A sseReader reads the events of a response, as an EventSource does.
type sseReader struct {
	resp  *http.Response
	lines *bufio.Reader
}

func readEvents(resp *http.Response) *sseReader { return &sseReader{resp, bufio.NewReader(resp.Body)} }

func (r *sseReader) close() { _ = r.resp.Body.Close() }

// next returns the next event, or an error at the end of the response.
func (r *sseReader) next() (e sseEvent, err error) {
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n" && e != sseEvent{}:
			return e, nil
		case name == "event":
			e.name = value
		case name == "id":
			if e.id, err = strconv.ParseUint(value, 10, 64); err != nil {
				return e, err
			}
		case name == "data":
			e.data += value
		}
	}
}

// open opens a connection, and returns its response behind the first event.
func (c *client) open(mode string) *sseReader {
	c.t.Helper()
	events := c.openWith(fmt.Sprintf(`{"mode":%q}`, mode))
	e, err := events.next()
	require.NoError(c.t, err)
	require.Equal(c.t, "open", e.name, e.data)
	c.secret = e.secret(c.t)
	return events
}

// secret returns the secret of an event open.
func (e sseEvent) secret(t *testing.T) string {
	t.Helper()
	var opened struct{ Secret string }
	require.NoError(t, json.Unmarshal([]byte(e.data), &opened))
	require.NotEmpty(t, opened.Secret)
	return opened.Secret
}

func (c *client) openWith(body string) *sseReader {
	c.t.Helper()
	resp := c.post("open", body)
	require.Equal(c.t, http.StatusOK, resp.StatusCode)
	require.Equal(c.t, "text/event-stream", resp.Header.Get("Content-Type"))
	return readEvents(resp)
}

// down asks for events behind those that were received.
func (c *client) down(mode string) *http.Response {
	c.t.Helper()
	return c.post("down", fmt.Sprintf(`{"secret":%q,"ack":%d,"mode":%q}`, c.secret, c.ack, mode))
}

// events is down for a response that must be one with events.
func (c *client) events(mode string) *sseReader {
	c.t.Helper()
	resp := c.down(mode)
	require.Equal(c.t, http.StatusOK, resp.StatusCode)
	events := readEvents(resp)
	if mode == "stream" {
		require.Equal(c.t, ":\n", must(events.lines.ReadString('\n')), "a stream begins at once")
	}
	return events
}

// receive returns the next message or the data of the event close, and checks the number.
func (c *client) receive(events *sseReader) sseEvent {
	c.t.Helper()
	e, err := events.next()
	require.NoError(c.t, err)
	require.Equal(c.t, c.ack+1, e.id)
	c.ack++
	if e.name == "ping" {
		return c.receive(events)
	}
	return e
}

// up sends messages, which must be accepted.
func (c *client) up(messages ...string) {
	c.t.Helper()
	c.seq++
	require.Equal(c.t, http.StatusNoContent, c.status("up", c.batch(c.seq, messages...)))
}

// batch returns the body of an up.
func (c *client) batch(seq uint64, messages ...string) string {
	return fmt.Sprintf(`{"secret":%q,"seq":%d,"ack":%d}`, c.secret, seq, c.ack) + "\n" + strings.Join(messages, "\n")
}

// acknowledge sends an up without messages.
func (c *client) acknowledge() int {
	c.t.Helper()
	return c.status("up", fmt.Sprintf(`{"secret":%q,"ack":%d}`, c.secret, c.ack))
}

// status sends a request and returns the status of its answer.
func (c *client) status(operation, body string) int {
	c.t.Helper()
	resp := c.post(operation, body)
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	assert.Empty(c.t, bytes.TrimSpace(text))
	require.NoError(c.t, resp.Body.Close())
	return resp.StatusCode
}

// Echo is a call with a number.
type Echo struct {
	N int `json:"n"`
}

func (Echo) MessageType() string { return "ECHO" }

// Echoed is the reply to Echo.
type Echoed struct {
	N int `json:"n"`
}

func (Echoed) MessageType() string { return "ECHOED" }

func echo(_ *router.Context, m Echo) (Echoed, error) { return Echoed(m), nil }

// call returns an Echo as a call.
func call(id, n int) string {
	return fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":"%d"},"payload":{"n":%d}}`, id, n)
}

// event returns an Echo as an event.
func event(n int) string { return fmt.Sprintf(`{"type":"ECHO","payload":{"n":%d}}`, n) }

// must returns v; its error fails the test.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call whose result does not matter.
func errorOf[V any](_ V, err error) error { return err }

// runSynctest runs a subtest inside a synctest bubble, where time is virtual.
func runSynctest(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// A recorder is a slice that is safe for concurrent use.
type recorder[T any] struct {
	mu   sync.Mutex
	list []T
}

func (r *recorder[T]) add(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, v)
}

func (r *recorder[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), r.list...)
}

// collect returns the open connections.
func collect(r *router.Router) []*router.Conn { return slices.Collect(r.Conns()) }

// onlyConn returns the only open connection.
func onlyConn(t *testing.T, r *router.Router) *router.Conn {
	t.Helper()
	conns := collect(r)
	require.Len(t, conns, 1)
	return conns[0]
}
