package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/outbound"
)

// Windows are [outbound.Windows] in Redis, so that many processes share one budget. All
// times are those of the Redis server's clock.
//
// They keep to the key names of Spectacles (https://github.com/spec-tacles/spec), so that
// other clients of that convention share the budget, too:
//
//	<prefix><route>:remaining  requests left in the window; expires when it ends
//	<prefix><route>:limit      requests in a window; below 0 if there is no limit
//	<prefix>global             exists while all routes must wait
//
// What others do to :remaining counts. Beside these there are <prefix><route>:window,
// <prefix><route>:flights and <prefix>global:places, which others need not know. Routes
// are part of the names as they are. Everything expires: a limit after a week without a
// response.
//
// Errors are those of the client and of Redis, and ctx's. A claim is never sent twice.
type Windows struct {
	prefix  string
	options outbound.WindowsOptions
	claims  *flights
	updates *flights
}

var _ outbound.Windows = (*Windows)(nil)

// NewWindows returns windows whose keys begin with prefix, which usually ends with a
// colon and names a bot, or whatever the API has limits for. Those of the same prefix
// share windows and must have the same options. It panics if the client is nil, if an
// option makes no sense, or if the client is of several nodes and prefix has no hash tag,
// such as "{mybot}:", to keep the keys on one of them. It sends nothing yet.
func NewWindows(client goredis.UniversalClient, prefix string, opts *outbound.WindowsOptions) *Windows {
	if client == nil {
		panic("redis: NewWindows needs a client")
	}
	if _, oneNode := client.(*goredis.Client); !oneNode && !hasHashTag(prefix) {
		panic(fmt.Sprintf("redis: NewWindows with prefix %q and a %T; it must have a hash tag, such as \"{mybot}:\"", prefix, client))
	}
	return &Windows{
		prefix:  prefix,
		options: opts.Filled(),
		claims:  newFlights("windows", client, newScript(claimLua), 2),
		updates: newFlights("windows", client, newScript(updateLua), 1),
	}
}

// hasHashTag is by https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags.
func hasHashTag(prefix string) bool {
	_, after, ok := strings.Cut(prefix, "{")
	return ok && strings.Index(after, "}") > 0
}

// Claim takes a request of a route's window, or says how long to wait.
func (w *Windows) Claim(ctx context.Context, route string) (outbound.Claim, error) {
	id := rand.Text()
	args := append(w.keys(route), id, w.options.Lease.Milliseconds(), w.options.GlobalLimit, milliseconds(w.options.GlobalPer))
	c := &call{args: args}
	if err := w.claims.do(ctx, c); err != nil {
		return outbound.Claim{}, err
	}
	wait, opened := c.state[0], c.state[1]
	if wait > 0 {
		return outbound.Claim{Wait: time.Duration(wait) * time.Millisecond}, nil
	}
	return outbound.Claim{Ticket: fmt.Sprint(opened, " ", id)}, nil
}

// Update says what a response told.
func (w *Windows) Update(ctx context.Context, route string, claim outbound.Claim, told outbound.Status) error {
	opened, id, ok := strings.Cut(claim.Ticket, " ")
	if _, err := strconv.ParseInt(opened, 10, 64); err != nil || !ok {
		return fmt.Errorf("redis: ticket is %q; it must be one that Claim has returned", claim.Ticket)
	}
	per := int64(0)
	if w.options.GlobalLimit > 0 {
		per = milliseconds(w.options.GlobalPer)
	}
	args := append(w.keys(route), id, opened, w.options.Lease.Milliseconds(), per,
		told.Limit, told.Remaining, milliseconds(told.ResetAfter), milliseconds(told.RetryAfter),
		bit(told.Global), bit(told.Unsent))
	return w.updates.do(ctx, &call{args: args})
}

// keys are a script's arguments so far, their number first.
func (w *Windows) keys(route string) []any {
	p := w.prefix + route
	return []any{6, p + ":remaining", p + ":limit", w.prefix + "global", p + ":window", p + ":flights", w.prefix + "global:places"}
}

// milliseconds rounds up.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
