package inspect_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestRefusals_SayWhyOnAnotherNode has a limit, and a request that was not upgraded.
func TestRefusals_SayWhyOnAnotherNode(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t, 2, func(o *inspect.Options) {
		o.RefusalText = func(r router.Refusal) string { return "text of " + r.Reason }
	})
	ann := routertest.Dial(t, nodes[1].router, routertest.Token("acme:ann"))
	for range 3 {
		routertest.Call[Said](ann, Say{Text: "hi", Secret: "s3cret"})
	}
	require.Equal(t, errors.ResourceExhausted, routertest.CallError(ann, Say{Text: "hi", Secret: "s3cret"}).Code)
	routertest.Refused(t, nodes[1].router, routertest.Token("acme:banned"))
	var found []object
	require.Eventually(t, func() bool { // hooks run after the answer
		found = rows(t, nodes[0].post(t, inspect.ViewRefusals, object{"tenant": "acme", "user": "ann"}))
		return len(found) == 1
	}, time.Minute, time.Millisecond)
	assert.Equal(t, "ingress", found[0]["stage"])
	assert.Equal(t, "RESOURCE_EXHAUSTED", found[0]["code"])
	assert.Equal(t, "rate", found[0]["kind"])
	assert.Equal(t, `rate limit exceeded: cost 1, capacity 3, policy "say"`, found[0]["exceeded"])
	assert.Equal(t, "say", found[0]["policy"])
	assert.EqualValues(t, 3, found[0]["limit"])
	assert.Greater(t, found[0]["retryAfterMs"], 1000.0)
	assert.Equal(t, "SAY", found[0]["type"])
	assert.Equal(t, nodes[1].router.NodeID(), found[0]["node"])
	assert.Equal(t, "text of ingress", found[0]["text"])
	assert.NotContains(t, fmt.Sprint(found), "s3cret")

	found = rows(t, nodes[0].post(t, inspect.ViewRefusals, object{"code": "PERMISSION_DENIED"}))
	require.Len(t, found, 1)
	assert.Equal(t, "banned", found[0]["user"])
	assert.Equal(t, "authentication", found[0]["stage"])
	assert.Empty(t, rows(t, nodes[0].post(t, inspect.ViewRefusals, object{"user": "none"})))
	assert.Empty(t, rows(t, nodes[0].post(t, inspect.ViewRefusals, object{"ip": "198.51.100.1"})))
}
