package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestReadState_ReturnsLatestMessageOfEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, 1, nil)
		log := newQuoteLog()
		log.publish(t, r, "go", 1)
		log.publish(t, r, "js", 2)
		log.publish(t, r, "", 3) // the empty key is a key
		log.publish(t, r, "go", 4)
		log.publish(t, r, "js", 0)
		require.NoError(t, r.Publish("feed/a", Blob{Text: "no key"}))
		require.NoError(t, r.Publish("feed/a", Quote{Symbol: "c", N: 7}))
		messages, at, err := r.ReadState(t.Context(), "feed/a")
		require.NoError(t, err)
		assert.EqualValues(t, 7, at.Offset)
		var got []string
		for _, m := range messages {
			var quote Quote
			require.NoError(t, m.Decode(&quote))
			got = append(got, fmt.Sprintf("%d %s %d", m.Position.Offset, quote.Symbol, quote.N))
		}
		assert.Equal(t, []string{"3  3", "4 go 4", "7 c 7"}, got)
		_, _, err = r.ReadState(t.Context(), "other")
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err))
		_, _, err = r.ReadState(t.Context(), "")
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	})
}

func TestReadState_ReturnsAStateOfSeveralParts(t *testing.T) {
	counted := unreliable()
	r := newStateRouter(counted, 1, nil)
	const keys = 2000
	for n := range keys {
		err := r.Publish("feed/a", Quote{Symbol: fmt.Sprint(n, strings.Repeat("x", 200)), N: n}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
	}
	messages, at, err := r.ReadState(t.Context(), "feed/a")
	require.NoError(t, err)
	assert.Greater(t, counted.reads.parts, int64(1))
	assert.EqualValues(t, keys, at.Offset)
	require.Len(t, messages, keys)
	for i, m := range messages {
		assert.EqualValues(t, i+1, m.Position.Offset)
	}
}

func TestStored_RemovalNeedsAKey(t *testing.T) {
	r := newStateRouter(nil, 1, nil)
	err := r.Publish("feed/a", Blob{}, router.Removed(), router.Stored(t.Context(), nil))
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	assert.ErrorContains(t, err, "router_test.Blob")
}

func TestCurrentState_IsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, 1, nil)
		recoveries := make(chan router.Recovery, 1)
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			recovery, err := subscribeState(ctx, "feed/a")
			recoveries <- recovery
			return Echoed(m), err
		})
		router.RPC(r, func(ctx *router.Context, _ Block) (Blocked, error) {
			_, err := subscribeState(ctx, "other")
			return Blocked{}, err
		})
		log := newQuoteLog()
		log.publish(t, r, "go", 1)
		log.publish(t, r, "js", 2)
		client := routertest.Dial(t, r)
		routertest.Call[Echoed](client, Echo{})
		recovery := <-recoveries
		assert.Equal(t, 2, recovery.State)
		assert.EqualValues(t, 2, recovery.Position.Offset)
		log.publish(t, r, "go", 3)
		for n := range 3 {
			assert.Equal(t, n+1, routertest.Receive[Quote](client).N)
		}
		assert.Equal(t, errors.FailedPrecondition, routertest.CallError(client, Block{}).Code)
	})
}
