package inspect_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

type Say struct {
	Text   string `json:"text"`
	Secret string `json:"secret"`
}

func (Say) MessageType() string { return "SAY" }

type Said struct {
	Text string `json:"text"`
}

func (Said) MessageType() string { return "SAID" }

// Join subscribes to a room.
type Join struct {
	Room string `json:"room"`
}

func (Join) MessageType() string { return "JOIN" }

// A testNode is a router with an inspector. Its limiter admits 3 messages SAY of a user, and its
// token is the user, optionally after "tenant:".
type testNode struct {
	router    *router.Router
	inspector *inspect.Inspector
	limiter   *memory.Limiter

	mu    sync.Mutex
	audit []inspect.AuditEntry
	deny  map[inspect.Action]bool
}

func perSay(in router.IngressContext) int64 {
	if in.Type == "SAY" {
		return 1
	}
	return 0
}

func newNode(t testing.TB, b broker.Broker, changes ...func(*inspect.Options)) *testNode {
	n := &testNode{limiter: memory.NewLimiter(limit.PerHour(3).Named("say")), deny: map[inspect.Action]bool{}}
	patient := router.Timeouts{Ping: time.Hour} // connections of some tests do not answer
	n.router = router.New(&router.Options{Broker: b, Timeouts: patient, Authenticate: func(req *http.Request) (router.Identity, error) {
		tenant, user, ok := strings.Cut(router.Token(req), ":")
		if !ok {
			tenant, user = "", tenant
		}
		if user == "banned" {
			return router.Identity{TenantID: tenant, UserID: user}, errors.Errorf(errors.PermissionDenied, "banned")
		}
		return router.Identity{TenantID: tenant, UserID: user}, nil
	}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = n.router.Shutdown(ctx)
	})
	opts := &inspect.Options{
		Authorize: n.authorize,
		Audit: func(_ context.Context, e inspect.AuditEntry) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.audit = append(n.audit, e)
			return nil
		},
		Limits:  []inspect.Limit{{Name: "say", Limiter: n.limiter, Key: ratelimit.KeyPerUser, Cost: perSay}},
		Timeout: 5 * time.Second, // a busy machine answers in time
	}
	for _, change := range changes {
		change(opts)
	}
	n.inspector = inspect.New(n.router, opts)
	n.router.UseIngress(ratelimit.New(n.limiter, &ratelimit.Options{Name: "say", Key: ratelimit.KeyPerUser, Cost: perSay}))
	router.Topic(n.router, "room/{id}", &router.TopicOptions{Presence: true, History: router.History{Messages: 10}})
	router.RPC(n.router, func(c *router.Context, m Say) (Said, error) {
		if m.Text == "error" {
			return Said{}, errors.Errorf(errors.NotFound, "nothing is said")
		}
		return Said{m.Text}, nil
	})
	router.RPC(n.router, func(c *router.Context, m Join) (Said, error) { return Said{m.Room}, c.Subscribe(m.Room) })
	return n
}

// newCluster returns some nodes of one broker in memory.
func newCluster(t *testing.T, size int, changes ...func(*inspect.Options)) (nodes []*testNode) {
	b := memory.NewBroker()
	for range size {
		nodes = append(nodes, newNode(t, b, changes...))
	}
	return nodes
}

func (n *testNode) authorize(req *http.Request, a inspect.Action) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case req.Header.Get("Authorization") == "":
		return "", errors.Errorf(errors.Unauthenticated, "secret reason")
	case n.deny[a]:
		return "", errors.Errorf(errors.PermissionDenied, "secret reason")
	}
	return "olga", nil
}

func (n *testNode) entries() []inspect.AuditEntry {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]inspect.AuditEntry(nil), n.audit...)
}

// newRequest returns a valid request of the page.
func newRequest(action inspect.Action, body string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "https://ops.example/api/"+string(action), strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Authorization", "Bearer olga")
	return req
}

func (n *testNode) send(req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	n.inspector.ServeHTTP(w, req)
	return w
}

// An object is decoded JSON.
type object = map[string]any

// post sends a request that must succeed.
func (n *testNode) post(t testing.TB, action inspect.Action, arg any) object {
	t.Helper()
	text, err := json.Marshal(arg)
	require.NoError(t, err)
	w := n.send(newRequest(action, string(text)))
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", action, w.Body)
	var result object
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &result))
	return result
}

// fail sends a request that must fail, and returns the error.
func (n *testNode) fail(t *testing.T, status int, action inspect.Action, arg any) string {
	t.Helper()
	text, err := json.Marshal(arg)
	require.NoError(t, err)
	w := n.send(newRequest(action, string(text)))
	require.Equal(t, status, w.Code, "%s: %s", action, w.Body)
	var result struct{ Error string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &result))
	assert.NotContains(t, result.Error, "secret reason")
	return result.Error
}

func rows(t testing.TB, result object) (all []object) {
	t.Helper()
	list, ok := result["rows"].([]any)
	require.True(t, ok, "%v", result)
	for _, row := range list {
		all = append(all, row.(object))
	}
	return all
}

// column returns one member of each row.
func column(all []object, name string) (values []any) {
	for _, row := range all {
		values = append(values, row[name])
	}
	return values
}
