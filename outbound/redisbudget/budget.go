package redisbudget

import (
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/redisclient"
	"github.com/penstock-go/penstock/outbound"
)

var (
	//go:embed window.lua
	windowLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed update.lua
	updateLua string
)

// A Budget is an [outbound.Budget] in Redis that several processes share. It measures time with
// the clock of the Redis server. It is safe for concurrent use.
//
// Its keys follow the Spectacles convention (https://github.com/spec-tacles/spec), so other
// clients of that convention can share the budget:
//
//	<prefix><route>:remaining  requests left in the window; expires when the window ends
//	<prefix><route>:limit      requests per window; below 0 if the route has no limit
//	<prefix>global             exists while all routes must wait
//
// A Budget obeys what other clients write to these keys. It has three more keys, which other
// clients need not know: <prefix><route>:window, <prefix><route>:in-flight (requests in
// flight) and <prefix>global:requests (requests that count against the global limit). A route is
// part of the key unchanged. Every key expires; a limit expires after a week without a response.
//
// If the clock of the server goes backwards, no wait becomes longer than it was when the response
// that caused it arrived, except for what other clients wrote. If the clock goes forward, a route
// gets the requests of at most one additional window.
//
// Errors come from the Redis client, from Redis, or from the context. TryAcquire sends its
// command once and never repeats it.
type Budget struct {
	prefix  string
	options outbound.BudgetOptions
	acquire *redisclient.Batcher
	update  *redisclient.Batcher
}

var _ outbound.Budget = (*Budget)(nil)

// New returns a Budget whose keys begin with prefix. The prefix names what the API limits,
// for example a bot, and usually ends with a colon. All processes that use a prefix share its
// budget and must have the same options. If opts is nil, the defaults apply. New sends
// nothing to Redis.
//
// It panics if client is nil, if an option is invalid, or if client may talk to several nodes
// and prefix has no hash tag such as "{mybot}:". The hash tag keeps all keys on one node. Only the
// namespace of redis.WithNamespace, if there is one, precedes the prefix.
func New(client goredis.UniversalClient, prefix string, opts *outbound.BudgetOptions) *Budget {
	if client == nil {
		panic("redisbudget: New with a nil client; pass a go-redis client")
	}
	client, namespace, isDefault := redisclient.Unwrap(client)
	if !isDefault {
		prefix = namespace + ":" + prefix
	}
	if _, oneNode := client.(*goredis.Client); !oneNode && !hasHashTag(prefix) {
		panic(fmt.Sprintf("redisbudget: New with prefix %q and a %T; it must have a hash tag, such as \"{mybot}:\"", prefix, client))
	}
	return &Budget{
		prefix:  prefix,
		options: opts.WithDefaults(),
		acquire: redisclient.NewBatcher("redisbudget", client, redisclient.NewScript(windowLua+acquireLua), 2),
		update:  redisclient.NewBatcher("redisbudget", client, redisclient.NewScript(windowLua+updateLua), 1),
	}
}

// hasHashTag follows https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags.
func hasHashTag(prefix string) bool {
	_, after, ok := strings.Cut(prefix, "{")
	return ok && strings.Index(after, "}") > 0
}

// TryAcquire implements [outbound.Budget].
func (b *Budget) TryAcquire(ctx context.Context, route string) (outbound.Grant, error) {
	return b.tryAcquire(ctx, route, b.options.GlobalLimit)
}

// TryAcquireShared implements [outbound.Budget].
func (b *Budget) TryAcquireShared(ctx context.Context, name string) (outbound.Grant, error) {
	return b.tryAcquire(ctx, name, 0)
}

// tryAcquire takes a globalLimit of 0 for a request that does not count against it.
func (b *Budget) tryAcquire(ctx context.Context, route string, globalLimit int64) (outbound.Grant, error) {
	id := rand.Text()
	args := append(b.keys(route), id, b.options.Lease.Milliseconds(), globalLimit, milliseconds(b.options.GlobalPer))
	c := &redisclient.Call{Request: args}
	if err := b.acquire.Do(ctx, c); err != nil {
		return outbound.Grant{}, err
	}
	wait, opened := c.Response[0], c.Response[1]
	if wait > 0 {
		return outbound.Grant{Wait: time.Duration(wait) * time.Millisecond}, nil
	}
	return outbound.Grant{ID: fmt.Sprint(opened, " ", id)}, nil
}

// Update implements [outbound.Budget]. It returns an error if the grant is not one that
// TryAcquire or TryAcquireShared has returned.
func (b *Budget) Update(ctx context.Context, route string, grant outbound.Grant, status outbound.Status) error {
	opened, id, ok := strings.Cut(grant.ID, " ")
	if _, err := strconv.ParseInt(opened, 10, 64); err != nil || !ok {
		return fmt.Errorf("redisbudget: the grant %q is invalid; it must be one that TryAcquire returned", grant.ID)
	}
	globalPer := int64(0)
	if b.options.GlobalLimit > 0 {
		globalPer = milliseconds(b.options.GlobalPer)
	}
	args := append(b.keys(route), id, opened, b.options.Lease.Milliseconds(), globalPer,
		status.Limit, status.Remaining, milliseconds(status.ResetAfter), milliseconds(status.RetryAfter),
		bit(status.Global), bit(status.Unsent))
	return b.update.Do(ctx, &redisclient.Call{Request: args})
}

// keys returns the number of keys and the keys, which are the first arguments of both scripts.
func (b *Budget) keys(route string) []any {
	p := b.prefix + route
	return []any{6, p + ":remaining", p + ":limit", b.prefix + "global", p + ":window", p + ":in-flight", b.prefix + "global:requests"}
}

// milliseconds rounds up, so that a wait is never too short.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
