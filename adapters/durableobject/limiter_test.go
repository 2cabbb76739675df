package durableobject_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject"
	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

func newClient(s *workerdtest.Server) *durableobject.Client {
	return durableobject.NewClient(s.URL, s.Secret, nil)
}

func consume(t testing.TB, l limit.Limiter, key limit.Key, cost int64) limit.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d, err := limit.Consume(ctx, l, key, cost)
	require.NoError(t, err)
	return d
}

// TestLimiter_IntervalBound has a capacity that is smaller by a millisecond's refill, which an
// object may grant early.
func TestLimiter_IntervalBound(t *testing.T) {
	s := startServer(t)
	p := limittest.IntervalBoundPolicy().Named("one")
	p = p.Burst(p.Capacity - p.Refill/1000)
	limittest.IntervalBound(t, durableobject.NewLimiter(newClient(s), p), durableobject.NewLimiter(newClient(s), p))
}

// TestClient_NamespacesAreSeparate has a policy without a namespace whose keys would otherwise be those
// of a namespace.
func TestClient_NamespacesAreSeparate(t *testing.T) {
	s := startServer(t)
	withNamespace := func(name string) *durableobject.Client {
		return durableobject.NewClient(s.URL, s.Secret, &durableobject.Options{Namespace: name})
	}
	for client, key := range map[*durableobject.Client]limit.Key{
		withNamespace("shop"):         {"ann"},
		withNamespace("shop-staging"): {"ann"},
		newClient(s):                  {"ann"},
	} {
		l, permits := durableobject.NewLimiter(client, limit.PerHour(3).Named("calls")), durableobject.NewSemaphore(client, "calls", 1)
		assert.EqualValues(t, 0, consume(t, l, key, 3).Remaining)
		permit, err := permits.Acquire(t.Context(), key)
		require.NoError(t, err)
		assert.NotNil(t, permit.Release)
	}
	other := durableobject.NewLimiter(newClient(s), limit.PerHour(3).Named("shop"))
	assert.True(t, consume(t, other, limit.Key{"calls", "ann"}, 3).Allowed)
	assert.PanicsWithValue(t, `durableobject: Options.Namespace: the namespace is "a b"; it must have 1 to 64 letters, digits, dots, hyphens and underscores`,
		func() { withNamespace("a b") })
}
