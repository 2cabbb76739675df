package inspect

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A refusal says why a client was refused.
type refusal struct {
	Time         time.Time `json:"time"`
	Node         string    `json:"node"`
	Conn         string    `json:"conn"` // "" for a request that was not upgraded
	Tenant       string    `json:"tenant"`
	User         string    `json:"user"`
	IP           string    `json:"ip"`
	Type         string    `json:"type"`
	Stage        string    `json:"stage"` // as router.Refusal.Reason
	Code         string    `json:"code"`
	Exceeded     string    `json:"exceeded"` // the text of the exceeded limit, or "", as that of what follows
	Kind         string    `json:"kind"`
	Option       string    `json:"option"`
	Policy       string    `json:"policy"`
	Observed     int64     `json:"observed"`
	Limit        int64     `json:"limit"`
	RetryAfterMs int64     `json:"retryAfterMs"` // 0 if unknown, -1 if retrying cannot help
	Text         string    `json:"text"`         // that of Options.RefusalText
}

// ringSize is how many refusals a node keeps.
const ringSize = 4096

// A refusalRing has the latest refusals of this node. The zero ring is empty, and allocated at the
// first one.
type refusalRing struct {
	mu    sync.Mutex
	ring  []refusal
	next  int // where the next one goes
	total int64
}

func (g *refusalRing) add(r refusal, unreported int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total += 1 + unreported
	if len(g.ring) < ringSize {
		g.ring = append(g.ring, r)
		return
	}
	g.ring[g.next] = r
	g.next = (g.next + 1) % ringSize
}

func (g *refusalRing) count() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

// latest returns those that match, the newest first, at most maxRows.
func (g *refusalRing) latest(matches func(*refusal) bool) (found []refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := range g.ring {
		r := &g.ring[(g.next+len(g.ring)-1-n)%len(g.ring)]
		if matches(r) {
			if found = append(found, *r); len(found) == maxRows {
				break
			}
		}
	}
	return found
}

// recordRefusal is called for the refusals that the router reports.
func (i *Inspector) recordRefusal(r router.Refusal) {
	row := refusal{
		Time: time.Now(), Node: i.router.NodeID(), Tenant: r.Identity.TenantID, User: r.Identity.UserID, Type: r.Type,
		Stage: r.Reason, Code: string(r.Code), RetryAfterMs: retryMs(r.RetryAfter),
	}
	if r.Conn != nil {
		row.Conn = r.Conn.ID()
	}
	if r.IP.IsValid() {
		row.IP = r.IP.String()
	}
	if l, ok := errors.AsType[*router.LimitExceeded](r.Err); ok {
		row.Exceeded, row.Kind, row.Option, row.Policy, row.Observed, row.Limit = l.Error(), string(l.Kind), l.Option, l.Policy, l.Observed, l.Limit
		row.RetryAfterMs = retryMs(l.RetryAfter)
	}
	if i.opts.RefusalText != nil {
		row.Text = truncate(i.opts.RefusalText(r), 256)
	}
	i.refusals.add(row, r.Unreported)
	i.traceRefusal(&row)
}

// retryMs returns milliseconds, rounded up, or -1 for never.
func retryMs(d time.Duration) int64 {
	if d == errors.Never {
		return -1
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// refusalQuery selects refusals. The fields that are set must all apply.
type refusalQuery struct {
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"`
	IP     string `json:"ip,omitempty"`
	Conn   string `json:"conn,omitempty"`
	Code   string `json:"code,omitempty"`
	Stage  string `json:"stage,omitempty"`
	Keys   bool   `json:"keys,omitempty"` // the keys that limits deny most often; the other fields mean nothing
}

func (q *refusalQuery) matches(r *refusal) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(q.Tenant, r.Tenant) && is(q.User, r.User) && is(q.IP, r.IP) && is(q.Conn, r.Conn) && is(q.Code, r.Code) && is(q.Stage, r.Stage)
}

func (i *Inspector) localRefusals(_ context.Context, q refusalQuery) ([]refusal, error) {
	return i.refusals.latest(q.matches), nil
}

// listRefusals returns the latest refusals of all nodes.
func (i *Inspector) listRefusals(ctx context.Context, q refusalQuery) (any, error) {
	if q.Keys {
		return i.listDenied(ctx)
	}
	answers, states, err := gather[[]refusal](ctx, i, askRefusals, q)
	if err != nil {
		return nil, err
	}
	return struct {
		Nodes nodeStates `json:"nodes"`
		Rows  []refusal  `json:"rows"`
	}{states, newestFirst(answers, func(r *refusal) time.Time { return r.Time })}, nil
}
