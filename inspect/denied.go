package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// This file finds the keys that limits deny most often, in the refusals that the nodes keep.

const (
	deniedTime = 15 * time.Minute
	deniedRows = 20
)

// A deniedRow is a key that a limit has denied, and what its bucket has now.
type deniedRow struct {
	bucketRow

	Tenant   string    `json:"tenant"` // of the latest refusal, as what follows
	User     string    `json:"user"`
	IP       string    `json:"ip"`
	Type     string    `json:"type"`
	Refusals int       `json:"refusals"` // that the router has reported in 15 minutes: at most one per client and second
	Latest   time.Time `json:"latest"`
}

// A deniedClient is whom a limit has refused.
type deniedClient struct {
	client

	policy, name string // of the limit
}

// A deniedCount is how often, and when the latest time was.
type deniedCount struct {
	refusals int
	latest   time.Time
}

// denied returns the clients that limits have refused since a time.
func (g *refusalRing) denied(since time.Time) map[deniedClient]deniedCount {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[deniedClient]deniedCount{}
	for n := range g.ring {
		r := &g.ring[n]
		if r.Kind == "" || r.Time.Before(since) {
			continue
		}
		who := deniedClient{client{r.Tenant, r.User, r.IP, r.Conn, r.Type}, r.Policy, cmp.Or(r.Option, r.Policy, r.Kind)}
		before := all[who]
		if before.latest.Before(r.Time) {
			before.latest = r.Time
		}
		all[who] = deniedCount{before.refusals + 1, before.latest}
	}
	return all
}

// hasPolicy reports whether a refusal that names a policy is one of this limit.
func (l *inspectedLimit) hasPolicy(name string) bool {
	if l.Key == nil || name == "" {
		return false
	}
	if d, ok := l.Limiter.(adapter.Describer); ok && name != l.Name {
		return slices.ContainsFunc(d.Describe(), func(d limit.Description) bool { return d.Name == name })
	}
	return name == l.Name
}

// bucketOfDenied returns which bucket has refused a client. The limit is nil if it is none of Options.Limits: a limit of
// the router, for example.
func (i *Inspector) bucketOfDenied(who *deniedClient) (l *inspectedLimit, key limit.Key, cost int64) {
	at := slices.IndexFunc(i.limits, func(l *inspectedLimit) bool { return l.hasPolicy(who.policy) })
	if in, err := who.message(); at >= 0 && err == nil {
		l = i.limits[at]
		return l, l.Key(in), max(l.cost(in), 1)
	}
	if who.User == "" {
		return nil, limit.Key{"ip", who.IP}, 0
	}
	return nil, limit.Key{"user", who.Tenant, who.User}, 0
}

// localDenied returns the keys that limits of this node have denied most often.
func (i *Inspector) localDenied(ctx context.Context, _ struct{}) ([]deniedRow, error) {
	type bucket struct {
		limit *inspectedLimit
		name  string
		key   limit.Key
	}
	byBucket := map[bucket]deniedRow{}
	for who, count := range i.refusals.denied(time.Now().Add(-deniedTime)) {
		l, key, cost := i.bucketOfDenied(&who)
		b := bucket{l, who.name, key}
		if l != nil {
			b.name = l.Name
		}
		row := byBucket[b]
		row.Name, row.Node, row.Key = b.name, i.router.NodeID(), b.key[:]
		row.Refusals += count.refusals
		if row.Latest.Before(count.latest) {
			row.Latest, row.Tenant, row.User, row.IP, row.Type, row.Cost = count.latest, who.Tenant, who.User, who.IP, who.Type, cost
		}
		byBucket[b] = row
	}
	rows := []deniedRow{}
	for _, b := range slices.SortedFunc(maps.Keys(byBucket), func(a, b bucket) int { return compareDenied(byBucket[a], byBucket[b]) }) {
		row := byBucket[b]
		if b.limit != nil {
			row.bucketRow = i.bucketOf(ctx, b.limit, b.key, row.Cost)
		}
		if rows = append(rows, row); len(rows) == deniedRows {
			break
		}
	}
	return rows, nil
}

// compareDenied sorts by refusals, the most first.
func compareDenied(a, b deniedRow) int {
	return cmp.Or(cmp.Compare(b.Refusals, a.Refusals), b.Latest.Compare(a.Latest), cmp.Compare(a.Name, b.Name), slices.Compare(a.Key, b.Key))
}

// listDenied returns the keys that limits of all nodes have denied most often. A row is that of one node: limiters in
// memory have a bucket on each.
func (i *Inspector) listDenied(ctx context.Context) (any, error) {
	answers, states, err := gather[[]deniedRow](ctx, i, askDenied, struct{}{})
	if err != nil {
		return nil, err
	}
	rows := []deniedRow{}
	for _, a := range answers {
		rows = append(rows, a.Result...)
	}
	slices.SortFunc(rows, compareDenied)
	return struct {
		Nodes nodeStates  `json:"nodes"`
		Rows  []deniedRow `json:"rows"`
	}{states, rows[:min(len(rows), deniedRows)]}, nil
}
