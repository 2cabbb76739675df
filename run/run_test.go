package run_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

type token struct {
	Text string `json:"text"`
}

func (token) MessageType() string { return "token" }

func concat(a, b token) (token, bool) { return token{a.Text + b.Text}, true }

// nodes returns routers with runs that share a store.
func nodes(t *testing.T, n int, opts run.Options[token]) []*run.Runs[token] {
	b := memory.NewBroker()
	all := make([]*run.Runs[token], n)
	for i := range all {
		r := router.New(&router.Options{Broker: b})
		all[i] = run.New(r, "answer/{chat}", &opts)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			assert.NoError(t, r.Shutdown(ctx))
		})
	}
	return all
}

func read(t *testing.T, rs *run.Runs[token], from run.From) (text string, info run.Info) {
	r, err := rs.Attach(t.Context(), "answer/1", from)
	require.NoError(t, err)
	defer r.Close()
	next := from.Item
	for part, err := range r.Parts(t.Context()) {
		require.NoError(t, err)
		assert.Equal(t, next, part.Number)
		next = part.Next()
		text += part.Item.Text
	}
	return text, r.Info()
}
