//go:build !js

package client_test

import (
	"context"
	"iter"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

type counted struct {
	Rows int `json:"rows"`
}

func (counted) MessageType() string { return "COUNTED" }

// countRows is a stream that ends with a reply, unless the number is odd.
func countRows(ctx *router.Context, m count) iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		for n := range m.To {
			if !yield(row{n}, nil) {
				return
			}
		}
		if m.To%2 == 1 {
			yield(row{}, errors.Errorf(errors.NotFound, "odd"))
			return
		}
		ctx.SetReply(counted{m.To})
	}
}

func TestStreamReply_ReturnsItemsAndReply(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	router.Stream(s.Router, countRows).Doc(router.RouteDoc{Reply: counted{}})
	router.RPC(s.Router, func(ctx *router.Context, m add) (sum, error) {
		return sum{m.A + m.B}, ctx.Progress(row{m.A})
	})
	s.start()
	c, ctx := s.connect(nil), testContext(t)
	rows := func(items iter.Seq2[row, error]) (n int, err error) {
		for item, err := range items {
			if err != nil {
				return n, err
			}
			require.Equal(t, n, item.N)
			n++
		}
		return n, nil
	}

	var reply counted
	n, err := rows(client.StreamReply[row](ctx, c, count{100}, &reply))
	require.NoError(t, err)
	assert.Equal(t, 100, n)
	assert.Equal(t, counted{100}, reply)

	reply = counted{}
	n, err = rows(client.StreamReply[row](ctx, c, count{7}, &reply))
	assert.Equal(t, errors.NotFound, errors.CodeOf(err))
	assert.Equal(t, 7, n)
	assert.Zero(t, reply)

	var other sum
	_, err = rows(client.StreamReply[row](ctx, c, count{2}, &other))
	require.ErrorContains(t, err, "the reply to COUNT has the type COUNTED; it must be SUM")

	n, err = rows(client.Stream[row](ctx, c, count{200}))
	require.NoError(t, err, "the reply is ignored")
	assert.Equal(t, 200, n)

	n, err = rows(client.StreamReply[row](ctx, c, add{0, 5}, &other))
	require.NoError(t, err, "the progress of a call")
	assert.Equal(t, 1, n)
	assert.Equal(t, 5, other.Sum)

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = rows(client.StreamReply[row](canceled, c, count{2}, &reply))
	assert.Equal(t, errors.Canceled, errors.CodeOf(err))
}
