package durableobject

import (
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Cooldown is a [limit.Limiter] that enforces a [limit.CooldownPolicy] in Durable Objects, so
// that processes everywhere share it. Its decisions equal those of a cooldown in memory, on the
// clock of the object, which has whole milliseconds: waits are rounded up. Requests, denials
// without one, and errors are as those of a [Limiter].
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment. Each of them counts the calls in its own window and observes
// every penalty until its end. The calls of a key that they admit in any interval are at most the
// largest Max, plus the largest Max/Window times the length of the interval.
//
// If the object's clock goes backwards, a key's calls and penalty move with it at the next call: a
// penalty then lasts at most its length again. If the clock goes forward, the calls and penalties
// that it passes end. A Cooldown is safe for concurrent use. It has
// the methods of a [adapter.Checker], [limit.Blocker], [adapter.Batcher], [adapter.Rememberer] and
// [adapter.Describer], and Count, which returns how many admitted calls of a key are in the window.
type Cooldown struct {
	*cooldown
	records *records
}

type cooldown = batch.Cooldown

// NewCooldown returns a cooldown. It calls onPenalty, which may be nil and must return soon,
// once for every penalty that a call of this process starts. NewCooldown panics if the policy is
// not valid or the client is nil. It does not connect to the Worker.
func NewCooldown(client *Client, policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	store := newRecords(client, "cooldown", keyname.OfCooldown(policy))
	return &Cooldown{batch.NewCooldown("durableobject", store, policy, onPenalty), store}
}
