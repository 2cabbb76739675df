package limittest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// randomUndos makes and undoes Takes of one key.
type randomUndos struct {
	rng      *rand.Rand
	limiter  limit.Limiter
	model    *Model
	key      limit.Key
	receipts []modelReceipt // not undone
	last     time.Duration  // when the last one was taken
}

type modelReceipt struct {
	taken   time.Duration
	receipt limit.Receipt
}

// step makes a Take, undoes one, or does nothing. It leaves few and young ones, of which a limiter
// must know exactly what to return.
func (r *randomUndos) step(t *testing.T, at time.Duration, cost int64) {
	t.Helper()
	ctx := context.Background()
	if n := len(r.receipts); n > 8 || n > 0 && at-r.receipts[0].taken > adapter.ExactUndo {
		r.receipts = nil
	}
	switch r.rng.IntN(6) {
	case 0:
		if at == r.last { // a refund in between would make them differ; limiters do not tell them apart
			return
		}
		r.last = at
		got, err := r.limiter.Take(ctx, r.key, limit.Take{Cost: cost, Receipt: true})
		require.NoError(t, err)
		if got.Receipt.Tokens > 0 {
			r.receipts = append(r.receipts, modelReceipt{at, got.Receipt})
		}
		got.Receipt = limit.Receipt{}
		require.Equal(t, r.model.Consume(at, cost), got, "a cost of %d with a receipt, at %v", cost, at)
	case 1:
		if len(r.receipts) == 0 {
			return
		}
		i := r.rng.IntN(len(r.receipts))
		one := r.receipts[i]
		r.receipts = append(r.receipts[:i], r.receipts[i+1:]...)
		require.NoError(t, one.receipt.Undo(ctx, r.limiter, r.key))
		r.model.Undo(at, one.taken, one.receipt.Tokens)
		got, err := limit.Inspect(ctx, r.limiter, r.key)
		require.NoError(t, err)
		require.Equal(t, r.model.Consume(at, 0), got, "after undoing %d of %v, at %v", one.receipt.Tokens, one.taken, at)
	}
}
