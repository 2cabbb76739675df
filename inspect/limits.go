package inspect

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
	"github.com/penstock-go/penstock/router"
)

// An inspectedLimit is a Limit with what operators have changed on this node.
type inspectedLimit struct {
	Limit

	mu      sync.Mutex // no other lock but those of the limiter is acquired under it
	applied *applied   // nil if no policy waits for its confirmation
	preview *preview   // the latest; nil before the first
}

// newLimits panics if a limit is not valid.
func newLimits(limits []Limit) (all []*inspectedLimit) {
	names := map[string]bool{}
	for n, l := range limits {
		switch {
		case l.Name == "":
			panic(fmt.Sprintf("inspect: Limits[%d] has no Name; operators select a limit by it", n))
		case l.Limiter == nil:
			panic(fmt.Sprintf("inspect: the limit %q has no Limiter", l.Name))
		case names[l.Name]:
			panic(fmt.Sprintf("inspect: there are two limits with the name %q", l.Name))
		}
		names[l.Name] = true
		all = append(all, &inspectedLimit{Limit: l})
	}
	return all
}

// limit returns a limit by its name.
func (i *Inspector) limit(name string) (*inspectedLimit, error) {
	at := slices.IndexFunc(i.limits, func(l *inspectedLimit) bool { return l.Name == name })
	if at < 0 {
		return nil, errors.Errorf(errors.NotFound, "this node has no limit %q in inspect.Options.Limits", name)
	}
	return i.limits[at], nil
}

// look decides about a message without taking anything.
func (l *inspectedLimit) look(ctx context.Context, key limit.Key, cost int64) (limit.Decision, error) {
	return l.Limiter.Take(ctx, key, limit.Take{Cost: cost, Mode: mode.Looking})
}

func (l *inspectedLimit) cost(in router.IngressContext) int64 {
	if l.Cost == nil {
		return 1
	}
	return l.Cost(in)
}

// policies returns the policies of the limit as text.
func (l *inspectedLimit) policies() (texts []string) {
	d, ok := l.Limiter.(adapter.Describer)
	if !ok {
		return []string{}
	}
	for _, d := range d.Describe() {
		if p, ok := policyOf(d); ok {
			texts = append(texts, p.String())
		} else {
			texts = append(texts, fmt.Sprintf("%s: at most %d within %v", d.Name, d.Limit, d.Window))
		}
	}
	return firstRows(texts)
}

// policyOf returns the policy of a token bucket, per second, minute or hour if that is exact:
// people write 5/s, and not the 1/200ms of a Description.
func policyOf(d limit.Description) (p limit.Policy, ok bool) {
	p = limit.Policy{Name: d.Name, Capacity: d.Limit, Refill: d.Refill, Per: d.Per}
	if d.Refill <= 0 || d.Refill > 1e9 { // the product below fits
		return p, d.Refill > 0
	}
	for _, unit := range []time.Duration{time.Second, time.Minute, time.Hour} {
		if d.Per <= unit && unit%d.Per == 0 {
			p.Refill, p.Per = d.Refill*int64(unit/d.Per), unit
			break
		}
	}
	return p, true
}

// A limitRow is a limit on one node.
type limitRow struct {
	Name       string        `json:"name"`
	Node       string        `json:"node"`
	Policies   []string      `json:"policies"`
	CanReset   bool          `json:"canReset"`
	CanBlock   bool          `json:"canBlock"`
	CanChange  bool          `json:"canChange"`
	CanPreview bool          `json:"canPreview"`
	Applied    *appliedState `json:"applied"` // null if no policy waits for its confirmation
	Preview    *previewState `json:"preview"` // null before the first one
}

func (i *Inspector) localLimits(context.Context, struct{}) (rows []limitRow, err error) {
	for _, l := range i.limits {
		_, resets := l.Limiter.(adapter.Resetter)
		_, blocks := l.Limiter.(limit.Blocker)
		_, changes := l.bucket()
		row := limitRow{
			Name: l.Name, Node: i.router.NodeID(), Policies: l.policies(),
			CanReset: resets, CanBlock: blocks, CanChange: changes, CanPreview: changes && l.Key != nil,
		}
		row.Applied, row.Preview = l.states()
		rows = append(rows, row)
	}
	return rows, nil
}

// listLimits returns the limits of all nodes.
func (i *Inspector) listLimits(ctx context.Context, _ struct{}) (any, error) {
	answers, states, err := gather[[]limitRow](ctx, i, askLimits, struct{}{})
	if err != nil {
		return nil, err
	}
	rows := []limitRow{}
	for _, a := range answers {
		rows = append(rows, a.Result...)
	}
	slices.SortStableFunc(rows, func(a, b limitRow) int { return i.place(a.Name) - i.place(b.Name) })
	return struct {
		Nodes nodeStates `json:"nodes"`
		Rows  []limitRow `json:"rows"`
	}{states, rows}, nil
}

// place returns where a limit is in Options.Limits.
func (i *Inspector) place(name string) int {
	return slices.IndexFunc(i.limits, func(l *inspectedLimit) bool { return l.Name == name })
}

// A client is the sender of a message that is not sent.
type client struct {
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"`
	IP     string `json:"ip,omitempty"`
	Conn   string `json:"conn,omitempty"`
	Type   string `json:"type,omitempty"`
}

// message returns the head of the message.
func (c *client) message() (in router.IngressContext, err error) {
	in = router.IngressContext{
		Type: c.Type, ConnID: c.Conn, ReceivedAt: time.Now(), Identity: router.Identity{TenantID: c.Tenant, UserID: c.User},
	}
	if c.IP != "" {
		if in.IP, err = netip.ParseAddr(c.IP); err != nil {
			return in, errors.Errorf(errors.InvalidArgument, "ip is %q; it must be an address", c.IP)
		}
	}
	return in, nil
}

// A bucketRow is what a limit decides about a message now.
type bucketRow struct {
	Name         string   `json:"name"`
	Node         string   `json:"node"`
	Conn         string   `json:"conn,omitempty"` // of the user, whose message it would be
	Key          []string `json:"key"`
	Cost         int64    `json:"cost"`
	Allowed      bool     `json:"allowed"`
	Reason       string   `json:"reason"` // of a denial
	Limit        int64    `json:"limit"`
	Remaining    int64    `json:"remaining"`    // before the message
	RetryAfterMs int64    `json:"retryAfterMs"` // -1 if waiting cannot help
	ResetAfterMs int64    `json:"resetAfterMs"` // until it is full, after the message if that is allowed
	Error        string   `json:"error"`        // the limiter could not decide
}

func (i *Inspector) bucketOf(ctx context.Context, l *inspectedLimit, key limit.Key, cost int64) bucketRow {
	row := bucketRow{Name: l.Name, Node: i.router.NodeID(), Key: key[:], Cost: cost}
	d, err := l.look(ctx, key, cost)
	if err != nil {
		row.Error = publicText(err)
		return row
	}
	row.Allowed, row.Limit, row.Remaining = d.Allowed, d.Limit, d.Remaining
	row.RetryAfterMs, row.ResetAfterMs = retryMs(d.RetryAfter), retryMs(d.ResetAfter)
	if d.Allowed {
		row.Remaining += cost // nothing was taken
	} else {
		row.Reason = cmp.Or(d.Reason.String(), "no_tokens")
	}
	return row
}

// gatherRows returns the rows of all nodes.
func gatherRows[R any](ctx context.Context, i *Inspector, name string, argument any) (any, error) {
	answers, states, err := gather[[]R](ctx, i, name, argument)
	if err != nil {
		return nil, err
	}
	rows := []R{}
	for _, a := range answers {
		rows = append(rows, a.Result...)
	}
	return struct {
		Nodes nodeStates `json:"nodes"`
		Rows  []R        `json:"rows"`
	}{states, rows}, nil
}

// bucketTarget names a bucket: by its key, or by a client whose messages are charged to it.
type bucketTarget struct {
	Limit string   `json:"limit"`
	Key   []string `json:"key,omitempty"` // up to four parts; if empty, that of the client

	client
}

// A block denies everything to a key.
type block struct {
	bucketTarget

	Seconds int `json:"seconds"`
}

// find returns the limit and the key.
func (t *bucketTarget) find(i *Inspector) (l *inspectedLimit, key limit.Key, err error) {
	if l, err = i.limit(t.Limit); err != nil {
		return nil, key, err
	}
	switch {
	case len(t.Key) > len(key):
		return nil, key, errors.Errorf(errors.InvalidArgument, "key has %d parts; it must have at most %d", len(t.Key), len(key))
	case len(t.Key) > 0:
		copy(key[:], t.Key)
		return l, key, nil
	case l.Key == nil:
		return nil, key, errors.Errorf(errors.InvalidArgument, "the limit %q has no Key in inspect.Options.Limits; enter the parts of the key", t.Limit)
	case t.client == client{}:
		return nil, key, errors.Errorf(errors.InvalidArgument, "there is no key and no client")
	}
	in, err := t.message()
	if err != nil {
		return nil, key, err
	}
	return l, l.Key(in), nil
}

func (i *Inspector) localBucket(ctx context.Context, t bucketTarget) ([]bucketRow, error) {
	l, key, err := t.find(i)
	if err != nil {
		return nil, err
	}
	return []bucketRow{i.bucketOf(ctx, l, key, 0)}, nil
}

// showBucket returns the tokens of a key on all nodes: the same ones if the limiter has a common
// store.
func (i *Inspector) showBucket(ctx context.Context, t bucketTarget) (any, error) {
	return gatherRows[bucketRow](ctx, i, askBucket, t)
}

func (i *Inspector) localReset(ctx context.Context, t bucketTarget) (bool, error) {
	l, key, err := t.find(i)
	if err != nil {
		return false, err
	}
	r, ok := l.Limiter.(adapter.Resetter)
	if !ok {
		return false, errors.Errorf(errors.Unimplemented, "the limiter of %q cannot be reset", l.Name)
	}
	return true, r.Reset(ctx, key)
}

func (i *Inspector) localBlock(ctx context.Context, t block) (bool, error) {
	l, key, err := t.find(i)
	if err != nil {
		return false, err
	}
	b, ok := l.Limiter.(limit.Blocker)
	if !ok {
		return false, errors.Errorf(errors.Unimplemented, "the limiter of %q cannot block keys", l.Name)
	}
	return true, b.Block(ctx, key, time.Duration(t.Seconds)*time.Second)
}

// resetKey fills the bucket of a key, on all nodes because each may have one.
func (i *Inspector) resetKey(ctx context.Context, t bucketTarget) (any, error) {
	_, states, err := gather[bool](ctx, i, askReset, t)
	return changed{states}, err
}

func (i *Inspector) blockKey(ctx context.Context, b block) (any, error) {
	if b.Seconds < 1 || b.Seconds > maxBlockSeconds {
		return nil, errors.Errorf(errors.InvalidArgument, "seconds is %d; it must be from 1 to %d", b.Seconds, maxBlockSeconds)
	}
	_, states, err := gather[bool](ctx, i, askBlock, b)
	return changed{states}, err
}

// maxBlockSeconds are the 365 days of limit.Blocker.
const maxBlockSeconds = 365 * 24 * 60 * 60
