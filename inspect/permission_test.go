package inspect_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// reading and changing are all actions of the API, with an argument for each.
var (
	reading = map[inspect.Action]string{
		inspect.ViewNodes: `{}`, inspect.ViewConns: `{}`, inspect.ViewConn: `{"id":"x"}`, inspect.ViewRefusals: `{}`,
		inspect.ViewAdmission: `{"user":"ann"}`, inspect.ViewTopics: `{}`, inspect.ViewTopic: `{"name":"x"}`, inspect.ViewLimits: `{}`,
		inspect.ViewBucket: `{"limit":"say","user":"ann"}`, inspect.ViewTrace: `{"id":"x"}`, inspect.ViewAudit: `{}`,
	}
	changing = map[inspect.Action]string{
		inspect.Disconnect: `{"id":"%"}`, inspect.EndSession: `{"id":"%"}`, inspect.DisconnectUser: `{"user":"ann"}`,
		inspect.Revoke: `{"user":"ann","topic":"room/a"}`, inspect.Publish: `{"topic":"room/a","type":"SAID","payload":"secret"}`,
		inspect.ResetKey: `{"limit":"say","user":"ann"}`, inspect.BlockKey: `{"limit":"say","user":"ann","seconds":60}`,
		inspect.PreviewPolicy: `{"limit":"say","policy":"9/s","minutes":1}`, inspect.ApplyPolicy: `{"limit":"say","policy":"9/s","minutes":1}`,
		inspect.ConfirmPolicy: `{"limit":"say","id":"%"}`, inspect.ReturnPolicy: `{"limit":"say","id":"%"}`,
		inspect.StartTrace: `{"user":"ann","seconds":60}`, inspect.StopTrace: `{"id":"%"}`,
	}
)

// sayMessage decodes messages to publish.
func sayMessage(o *inspect.Options) {
	o.Message = func(typ string, payload []byte) (router.Message, error) {
		if typ != "SAID" {
			return nil, errors.New("only SAID can be published")
		}
		return Said{strings.TrimSpace(string(payload))}, nil
	}
}

func TestNew_WithoutAuthorizePanics(t *testing.T) {
	t.Parallel()
	const want = "inspect: Options.Authorize is nil; it must decide who may use the inspector"
	assert.PanicsWithValue(t, want, func() { inspect.New(router.New(nil), nil) })
	assert.PanicsWithValue(t, want, func() { inspect.New(router.New(nil), &inspect.Options{}) })
	all := func(*http.Request, inspect.Action) (string, error) { return "", nil }
	for want, limits := range map[string][]inspect.Limit{
		"inspect: Limits[0] has no Name; operators select a limit by it": {{}},
		`inspect: the limit "a" has no Limiter`:                          {{Name: "a"}},
	} {
		assert.PanicsWithValue(t, want, func() { inspect.New(router.New(nil), &inspect.Options{Authorize: all, Limits: limits}) })
	}
	assert.Panics(t, func() { inspect.New(router.New(nil), &inspect.Options{Authorize: all, Timeout: -1}) })
	assert.PanicsWithValue(t, "inspect: the router is nil; create one with router.New", func() { inspect.New(nil, &inspect.Options{Authorize: all}) })
	r := router.New(nil)
	routertest.Dial(t, r)
	assert.Panics(t, func() { inspect.New(r, &inspect.Options{Authorize: all}) }, "the router serves")
}

// TestActions_RefusedUnlessAllIsRight sends each action without permission, without credentials,
// from other origins, with other methods and content types. None of them has an effect or an entry
// in the audit log.
func TestActions_RefusedUnlessAllIsRight(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, sayMessage)[0]
	ann := routertest.Dial(t, n.router, routertest.Token("ann"))
	routertest.Call[Said](ann, Join{"room/a"})
	id := rows(t, n.post(t, inspect.ViewConns, object{"user": "ann"}))[0]["id"].(string)
	for _, actions := range []map[inspect.Action]string{reading, changing} {
		for action, body := range actions {
			body = strings.ReplaceAll(body, "%", id)
			refuses := func(what string, status int, change func(*http.Request)) {
				t.Helper()
				req := newRequest(action, body)
				change(req)
				w := n.send(req)
				assert.Equal(t, status, w.Code, "%s %s: %s", action, what, w.Body)
				assert.NotContains(t, w.Body.String(), "secret reason")
			}
			set := func(name, value string) func(*http.Request) {
				return func(req *http.Request) { req.Header.Set(name, value) }
			}
			n.mu.Lock()
			n.deny[action] = true
			n.mu.Unlock()
			refuses("without permission", http.StatusForbidden, func(*http.Request) {})
			n.mu.Lock()
			delete(n.deny, action)
			n.mu.Unlock()
			refuses("without credentials", http.StatusUnauthorized, func(req *http.Request) { req.Header.Del("Authorization") })
			refuses("from another site", http.StatusForbidden, set("Sec-Fetch-Site", "cross-site"))
			refuses("from a subdomain", http.StatusForbidden, set("Sec-Fetch-Site", "same-site"))
			refuses("from another origin", http.StatusForbidden, func(req *http.Request) {
				req.Header.Del("Sec-Fetch-Site")
				req.Header.Set("Origin", "https://evil.example")
			})
			refuses("as a form", http.StatusUnsupportedMediaType, set("Content-Type", "application/x-www-form-urlencoded"))
			refuses("as text", http.StatusUnsupportedMediaType, set("Content-Type", "text/plain"))
			refuses("without a type", http.StatusUnsupportedMediaType, func(req *http.Request) { req.Header.Del("Content-Type") })
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
				refuses(method, http.StatusMethodNotAllowed, func(req *http.Request) { req.Method = method })
			}
			req := newRequest(action, strings.Repeat("x", 1<<20))
			assert.Equal(t, http.StatusBadRequest, n.send(req).Code, "%s with a long body", action)
			assert.Equal(t, http.StatusBadRequest, n.send(newRequest(action, body+"x")).Code, "%s with invalid JSON", action)
		}
	}
	assert.Empty(t, n.entries())
	assert.Len(t, rows(t, n.post(t, inspect.ViewConns, object{"user": "ann"})), 1)
	assert.Zero(t, ann.Pending())
	assert.Equal(t, http.StatusNotFound, n.send(newRequest("none", `{}`)).Code)
}

// TestActions_AuditedBeforeAndAfter does all actions that change something.
func TestActions_AuditedBeforeAndAfter(t *testing.T) {
	t.Parallel()
	for action, body := range changing {
		n := newCluster(t, 1, sayMessage)[0]
		routertest.Dial(t, n.router, routertest.Token("ann"))
		n.send(newRequest(action, body))
		entries := n.entries()
		require.Len(t, entries, 2, action)
		for i, e := range entries {
			assert.Equal(t, "olga", e.Actor)
			assert.Equal(t, action, e.Action)
			assert.Equal(t, i == 1, e.Done)
			assert.Equal(t, n.router.NodeID(), e.NodeID)
			assert.NotContains(t, e.Target, "payload")
			assert.NotEmpty(t, e.Target)
		}
		audit := n.post(t, inspect.ViewAudit, nil)["entries"].([]any)
		require.Len(t, audit, 1)
		assert.Equal(t, string(action), audit[0].(object)["action"])
	}
	for action, body := range reading {
		n := newCluster(t, 1)[0]
		assert.Equal(t, http.StatusOK, n.send(newRequest(action, body)).Code, action)
		assert.Empty(t, n.entries())
	}
}

// TestActions_NotDoneIfAuditRefuses has an audit log that cannot store.
func TestActions_NotDoneIfAuditRefuses(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, func(o *inspect.Options) {
		o.Audit = func(context.Context, inspect.AuditEntry) error { return errors.New("the disk is full") }
	})[0]
	ann := routertest.Dial(t, n.router, routertest.Token("ann"))
	for action, body := range changing {
		w := n.send(newRequest(action, body))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, action)
		assert.NotContains(t, w.Body.String(), "disk")
	}
	routertest.Call[Said](ann, Say{Text: "still connected"})
}

// TestHeaders_OnEveryAnswer has answers of all kinds.
func TestHeaders_OnEveryAnswer(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1)[0]
	get := func(path string) *http.Request {
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.Header.Set("Authorization", "Bearer olga")
		return req
	}
	for _, req := range []*http.Request{
		get("/"), get("/app.js"), get("/views.js"), get("/dom.js"), get("/style.css"), get("/none"), get("/api/nodes"), get("/api/none"),
		newRequest(inspect.ViewNodes, "{}"), newRequest(inspect.ViewNodes, "x"), httptest.NewRequest(http.MethodGet, "/", nil),
	} {
		w := n.send(req)
		policy := w.Header().Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'", req.URL)
		assert.Contains(t, policy, "frame-ancestors 'none'")
		assert.NotContains(t, policy, "unsafe")
		assert.Equal(t, "DENY", w.Header().Get("X-Frame-Options"))
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		assert.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
		assert.NotEmpty(t, w.Header().Get("Content-Type"))
	}
	assert.Equal(t, http.StatusUnauthorized, n.send(httptest.NewRequest(http.MethodGet, "/", nil)).Code)
	n.deny[inspect.ViewPage] = true
	for _, path := range []string{"/", "/app.js", "/style.css"} {
		assert.Equal(t, http.StatusForbidden, n.send(get(path)).Code, path)
	}
	post := get("/")
	post.Method = http.MethodPost
	assert.Equal(t, http.StatusMethodNotAllowed, n.send(post).Code)
}
