package redis

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redisclient"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A keyspace has the buckets or the records of a limiter.
type keyspace struct {
	name    string // for errors
	client  goredis.UniversalClient
	oneNode bool // one script may have keys of several calls
	prefix  string
	joints  *jointScripts // of calls to several limiters
	blocks  *redisclient.Batcher
	now     func() time.Duration
	clock   func() time.Time // of the calendar
}

// newKeyspace returns the keyspace of a limiter. The kind and the name of its policy are parts of the
// names of its keys; errors call it what. The script blocks a key.
func newKeyspace(client goredis.UniversalClient, kind, policyName, what, blockLua string) keyspace {
	if client == nil {
		panic("redis: a " + what + " needs a client")
	}
	name := "redis: " + what
	client, prefix, _ := redisclient.Unwrap(client)
	_, oneNode := client.(*goredis.Client)
	epoch := time.Now()
	return keyspace{
		name:    name,
		client:  client,
		oneNode: oneNode,
		prefix:  keyname.Join(prefix+":"+kind, []string{policyName}),
		joints:  newJointScripts(client),
		blocks:  redisclient.NewBatcher(name, client, redisclient.NewScript(blockLua), 0),
		now:     func() time.Duration { return time.Since(epoch) },
		clock:   time.Now,
	}
}

// Now returns the time of the keyspace's monotonic clock.
func (p *keyspace) Now() time.Duration { return p.now() }

// Time returns the time of the calendar.
func (p *keyspace) Time() time.Time { return p.clock() }

// NamePrefix returns how the names of all keys begin.
func (p *keyspace) NamePrefix() string { return p.prefix }

// Name returns the name of a key.
func (p *keyspace) Name(key *limit.Key) string { return keyname.Join(p.prefix, keyname.Parts(key)) }

// SetBlock removes what a key has taken, and blocks it unless d is 0.
func (p *keyspace) SetBlock(ctx context.Context, key *limit.Key, d time.Duration) error {
	return p.blocks.Do(ctx, &redisclient.Call{Request: []any{1, p.Name(key), d.Microseconds()}})
}

// SharesWith reports whether a store has the same client. On a Cluster it returns false, because the
// keys may be on different nodes.
func (p *keyspace) SharesWith(other batch.Store) bool {
	o, ok := other.(jointStore)
	return ok && p.oneNode && o.at().client == p.client
}

func (p *keyspace) at() *keyspace { return p }

// leaseArgs returns the last arguments of a script that makes a lease or a mark, if there is one.
func leaseArgs(l batch.Lease) []any {
	switch {
	case l.Length == 0:
		return nil
	case l.IsMark():
		return []any{0, l.Length.Microseconds(), adapter.MaxMarks}
	default:
		return []any{l.ID, l.Length.Microseconds(), adapter.MaxLeases}
	}
}
