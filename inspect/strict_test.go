package inspect_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestActions_RefuseWhatIsUnderstoodInTwoWays changes one member of the argument of each action. Nothing is done or
// logged.
func TestActions_RefuseWhatIsUnderstoodInTwoWays(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, sayMessage)[0]
	ann := routertest.Dial(t, n.router, routertest.Token("ann"))
	routertest.Call[Said](ann, Join{"room/a"})
	all := maps.Clone(reading)
	maps.Copy(all, changing)
	for action, body := range all {
		if body == "{}" {
			body = `{"user":"ann"}` // of one that has no such member, or that needs none
		}
		name, _, _ := strings.Cut(body[2:], `"`)
		first, rest := `"`+name+`":`, body[1:]
		for what, changed := range map[string]string{
			"another case":      strings.Replace(body, first, strings.ToUpper(first), 1),
			"twice":             "{" + first + `"bob",` + rest,
			"twice, other case": "{" + strings.ToUpper(first) + `"bob",` + rest,
			"unknown":           `{"other":1,` + rest,
			"a member that only nodes send each other": `{"code":4000,"step":"apply",` + rest,
			"two values": body + body,
		} {
			w := n.send(newRequest(action, changed))
			assert.Equal(t, http.StatusBadRequest, w.Code, "%s: %s: %s %s", action, what, changed, w.Body)
		}
	}
	assert.Empty(t, n.entries())
	routertest.Call[Said](ann, Say{Text: "still connected"})
	assert.Zero(t, ann.Pending())
}

// TestAudit_HasWhatWasUnderstood writes members with escapes and in another order.
func TestAudit_HasWhatWasUnderstood(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, sayMessage)[0]
	for body, want := range map[string]map[string]string{
		`{"\u0074ype":"SAID","p\u0061yload":{"secret":1},"topic":"room/\u0061"}`: {"type": "SAID", "topic": "room/a"},
		`{"topic":"room/a","type":"SAID","payload":"secret"}`:                    {"type": "SAID", "topic": "room/a"},
		`{"topic":"room/a","type":"SAID"}`:                                       {"type": "SAID", "topic": "room/a"},
	} {
		before := len(n.entries())
		n.send(newRequest(inspect.Publish, body))
		entries := n.entries()[before:]
		require.Len(t, entries, 2, body)
		assert.Equal(t, want, entries[0].Target)
	}
}

func TestHosts_OthersAreRefused(t *testing.T) {
	t.Parallel()
	n := newCluster(t, 1, func(o *inspect.Options) { o.Hosts = []string{"Ops.example", "localhost:9090", "[::1]"} })[0]
	for host, served := range map[string]bool{
		"ops.example": true, "OPS.example": true, "ops.example:8443": true, "localhost:9090": true, "[::1]:9090": true, "[::1]": true,
		"localhost": false, "localhost:9091": false, "evil.example": false, "evil.example:9090": false, "127.0.0.1:9090": false,
		"ops.example.evil.example": false, "ops.example.": false, "": false, "x:ops.example": false,
	} {
		want := http.StatusMisdirectedRequest
		if served {
			want = http.StatusOK
		}
		page := newRequest("", "")
		page.Method, page.URL.Path = http.MethodGet, "/"
		for _, req := range []*http.Request{newRequest(inspect.ViewNodes, "{}"), page} {
			req.Host = host
			req.Header.Set("Origin", "https://"+host) // as DNS rebinding has it
			assert.Equal(t, want, n.send(req).Code, "%q %s", host, req.URL.Path)
		}
	}
	all := func(*http.Request, inspect.Action) (string, error) { return "", nil }
	for _, host := range []string{"", "https://ops.example", "*.example", "ops.example/"} {
		assert.Panics(t, func() { inspect.New(router.New(nil), &inspect.Options{Authorize: all, Hosts: []string{host}}) }, host)
	}
}
