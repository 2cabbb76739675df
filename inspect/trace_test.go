package inspect_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestTrace_RecordsAUserOnAllNodes reads in two steps, and has messages of another user.
func TestTrace_RecordsAUserOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newCluster(t, 2)
		ann, bob := routertest.Dial(t, nodes[1].router, routertest.Token("ann")), routertest.Dial(t, nodes[1].router, routertest.Token("bob"))
		id := nodes[0].post(t, inspect.StartTrace, object{"user": "ann", "seconds": 60})["id"]
		routertest.Call[Said](ann, Say{Text: "hi", Secret: "s3cret"})
		routertest.Call[Said](bob, Say{})
		synctest.Wait()
		first := nodes[0].post(t, inspect.ViewTrace, object{"id": id})
		assert.Equal(t, []any{"received", "handled"}, column(rows(t, first), "event"))
		assert.Equal(t, []any{"SAY", "SAY"}, column(rows(t, first), "type"))
		assert.Greater(t, rows(t, first)[0]["size"], 10.0)
		assert.NotContains(t, fmt.Sprint(first), "s3cret")
		assert.NotNil(t, routertest.CallError(ann, Say{Text: "error"}))
		synctest.Wait() // the refusal is reported after the answer
		routertest.Call[Said](ann, Say{})
		time.Sleep(time.Second)                            // of the refusals of one client, one per second is reported
		assert.NotNil(t, routertest.CallError(ann, Say{})) // above the limit
		synctest.Wait()
		second := rows(t, nodes[0].post(t, inspect.ViewTrace, object{"id": id, "after": first["after"]}))
		assert.Equal(t, []any{"received", "handled", "refused", "received", "handled", "received", "refused"}, column(second, "event"))
		assert.Equal(t, []any{"", "NOT_FOUND", "NOT_FOUND", "", "", "", "RESOURCE_EXHAUSTED"}, column(second, "code"))
		nodes[1].post(t, inspect.StopTrace, object{"id": id})
		assert.Equal(t, false, nodes[0].post(t, inspect.ViewTrace, object{"id": id})["running"])
	})
}

// TestTrace_RecordsATopicOnAllNodes has publications of another topic and of another type.
func TestTrace_RecordsATopicOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newCluster(t, 3)
		for n := range 2 { // the third node has no subscribers
			client := routertest.Dial(t, nodes[n].router, routertest.Token("ann"))
			routertest.Call[Said](client, Join{"room/a"})
			routertest.Call[Said](client, Join{"room/b"})
		}
		id := nodes[0].post(t, inspect.StartTrace, object{"topic": "room/a", "type": "SAID", "seconds": 60})["id"]
		require.NoError(t, nodes[2].router.Publish("room/a", Said{"hi"}))
		require.NoError(t, nodes[2].router.Publish("room/b", Said{"hi"}))
		require.NoError(t, nodes[2].router.Publish("room/a", Say{Secret: "s3cret"}))
		synctest.Wait()
		found := nodes[0].post(t, inspect.ViewTrace, object{"id": id})
		require.Len(t, rows(t, found), 2)
		for _, row := range rows(t, found) {
			assert.Subset(t, row, object{"event": "published", "type": "SAID", "offset": 1.0, "receivers": 1.0, "code": ""})
			assert.Greater(t, row["size"], 10.0)
		}
		nodes[1].post(t, inspect.StopTrace, object{"id": id})
		require.NoError(t, nodes[0].router.Publish("room/a", Said{"hi"}), "without an observer")
		assert.Empty(t, rows(t, nodes[0].post(t, inspect.ViewTrace, object{"id": id})))
	})
}

// TestTrace_EndsByTime also has traces that are not valid, and too many.
func TestTrace_EndsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newCluster(t, 2)
		for _, wrong := range []object{{"seconds": 60}, {"user": "ann", "seconds": 0}, {"topic": "a", "user": "ann", "seconds": 1}, {"type": "SAY", "seconds": 301}} {
			nodes[0].fail(t, http.StatusBadRequest, inspect.StartTrace, wrong)
		}
		var ids []any
		for range 4 {
			ids = append(ids, nodes[0].post(t, inspect.StartTrace, object{"type": "SAY", "seconds": 300})["id"])
		}
		assert.Contains(t, nodes[0].fail(t, http.StatusTooManyRequests, inspect.StartTrace, object{"type": "SAY", "seconds": 300}), "stop one")
		time.Sleep(5*time.Minute - time.Second)
		assert.Equal(t, true, nodes[0].post(t, inspect.ViewTrace, object{"id": ids[0]})["running"])
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, false, nodes[0].post(t, inspect.ViewTrace, object{"id": ids[0]})["running"])
		nodes[0].post(t, inspect.StartTrace, object{"type": "SAY", "seconds": 300})
	})
}

// TestTrace_PayloadsNeedRedactAndPermission has a redaction that drops a secret.
func TestTrace_PayloadsNeedRedactAndPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arg := object{"type": "SAY", "seconds": 60, "payloads": true}
		assert.Contains(t, newCluster(t, 1)[0].fail(t, http.StatusConflict, inspect.StartTrace, arg), "Options.Redact")
		n := newCluster(t, 1, func(o *inspect.Options) {
			o.Redact = func(m router.Message) any {
				if say, ok := m.(Say); ok {
					say.Secret = "***"
					return say
				}
				return nil
			}
		})[0]
		n.deny[inspect.ViewPayloads] = true
		n.fail(t, http.StatusForbidden, inspect.StartTrace, arg)
		assert.Empty(t, n.entries())
		n.deny[inspect.ViewPayloads] = false
		id := n.post(t, inspect.StartTrace, arg)["id"]
		ann := routertest.Dial(t, n.router, routertest.Token("ann"))
		routertest.Call[Said](ann, Say{Text: "hi", Secret: "s3cret"})
		synctest.Wait()
		found := rows(t, n.post(t, inspect.ViewTrace, object{"id": id}))
		require.Len(t, found, 2)
		assert.Equal(t, `{"text":"hi","secret":"***"}`, found[1]["payload"])
		n.deny[inspect.ViewPayloads] = true // for another operator
		assert.Equal(t, []any{"", ""}, column(rows(t, n.post(t, inspect.ViewTrace, object{"id": id})), "payload"))
	})
}

// TestPanics_EndNoMessage has functions of the application that panic, on the asked node and on the asking one.
func TestPanics_EndNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		good := newNode(t, b)
		bad := newNode(t, b, func(o *inspect.Options) {
			o.Redact = func(router.Message) any { panic("Redact") }
			o.Limits[0].Key = func(router.IngressContext) limit.Key { panic("Key") }
		})
		ann := routertest.Dial(t, bad.router, routertest.Token("ann"))
		bad.post(t, inspect.StartTrace, object{"user": "ann", "seconds": 60, "payloads": true})
		bad.post(t, inspect.PreviewPolicy, object{"limit": "say", "policy": "1/s", "minutes": 1})
		routertest.Call[Said](ann, Say{})
		found := good.post(t, inspect.ViewAdmission, object{"user": "ann", "type": "SAY"})
		assert.Len(t, rows(t, found), 1)
		assert.Equal(t, []any{object{"node": bad.router.NodeID(), "error": "a function of the application has panicked"}}, found["nodes"].(object)["missing"])
	})
}
