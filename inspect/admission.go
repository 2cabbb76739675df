package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/router"
)

// This file answers whether the next message of a client would be admitted.

// maxDecidedConns bounds the connections of a user for which a node decides.
const maxDecidedConns = 5

// decisions are those of one node.
type decisions struct {
	Conns int         `json:"conns"` // of the user on this node about which it decides, if the client is only a user
	Rows  []bucketRow `json:"rows"`
}

// localAdmission decides about a message by every limit that applies to it, and takes nothing. For a user, it decides
// about a message of each connection of the user on this node, if there are any.
func (i *Inspector) localAdmission(ctx context.Context, c client) (d decisions, err error) {
	in, err := c.message()
	if err != nil {
		return d, err
	}
	d.Rows = []bucketRow{}
	if c.isOnlyUser() {
		ids := i.access.UserConns(c.Tenant, c.User)
		for _, id := range ids[:min(len(ids), maxDecidedConns)] {
			if i.decideConn(ctx, &d, id, c.Type) {
				d.Conns++
			}
		}
	}
	if d.Conns == 0 {
		i.decide(ctx, &d, in, "")
	}
	return d, nil
}

// isOnlyUser reports whether the client is a user on any connection.
func (c *client) isOnlyUser() bool { return c.User != "" && c.IP == "" && c.Conn == "" }

// decideConn decides about a message of a connection of this node. It reports false if it was closed meanwhile.
func (i *Inspector) decideConn(ctx context.Context, d *decisions, id, messageType string) bool {
	c := i.router.Conn(id)
	found, ok := i.access.Conn(id)
	if c == nil || !ok {
		return false
	}
	if found.MessageBurst != router.Unlimited {
		row := bucketRow{
			Name: "router.Limits.MessagesPerConn", Node: i.router.NodeID(), Conn: id, Key: []string{"conn", id}, Cost: 1,
			Allowed: found.MessageTokens > 0, Limit: int64(found.MessageBurst), Remaining: int64(found.MessageTokens),
		}
		if !row.Allowed {
			row.Reason = "no_tokens"
		}
		d.Rows = append(d.Rows, row)
	}
	i.decide(ctx, d, router.IngressContext{Type: messageType, ConnID: id, ReceivedAt: time.Now(), Identity: c.Identity(), IP: c.IP()}, id)
	return true
}

// decide adds the decisions of the limits about a message.
func (i *Inspector) decide(ctx context.Context, d *decisions, in router.IngressContext, connID string) {
	for _, l := range i.limits {
		if l.Key == nil {
			continue
		}
		cost := l.cost(in)
		if cost <= 0 {
			continue
		}
		row := i.bucketOf(ctx, l, l.Key(in), cost)
		row.Conn = connID
		d.Rows = append(d.Rows, row)
	}
}

// showAdmission returns what all nodes would decide about the next message of a client, and a sentence that says
// it. If the user is connected, the nodes without a connection of the user do not matter.
func (i *Inspector) showAdmission(ctx context.Context, c client) (any, error) {
	answers, states, err := gather[decisions](ctx, i, askAdmission, c)
	if err != nil {
		return nil, err
	}
	connected := slices.ContainsFunc(answers, func(a nodeAnswer[decisions]) bool { return a.Result.Conns > 0 })
	rows, decisive := []bucketRow{}, []bucketRow{}
	for _, a := range answers {
		rows = append(rows, a.Result.Rows...)
		if !connected || a.Result.Conns > 0 {
			decisive = append(decisive, a.Result.Rows...)
		}
	}
	v := i.verdictOf(c, decisive)
	if !connected && c.isOnlyUser() {
		v.Sentence += " The user has no connection that this node knows of."
	}
	return struct {
		Nodes   nodeStates  `json:"nodes"`
		Rows    []bucketRow `json:"rows"`
		Verdict verdict     `json:"verdict"`
	}{states, rows, v}, nil
}

// A verdict sums decisions up.
type verdict struct {
	Admitted string `json:"admitted"` // "yes", "no", "depends" on the node or connection, or "unknown"
	Sentence string `json:"sentence"`
}

func (i *Inspector) verdictOf(c client, rows []bucketRow) verdict {
	about := "the next " + cmp.Or(c.Type, "message")
	if c.User != "" {
		about += " of " + c.User
	}
	if c.Type != "" && !slices.Contains(slices.Collect(i.router.Types()), c.Type) {
		return verdict{"no", fmt.Sprintf("No: this node has no handler for the type %s.", c.Type)}
	}
	if len(rows) == 0 {
		return verdict{"yes", fmt.Sprintf("Yes: none of the limits applies to %s.", about)}
	}
	if at := slices.IndexFunc(rows, func(r bucketRow) bool { return r.Error != "" }); at >= 0 {
		return verdict{"unknown", fmt.Sprintf("Unknown: %s cannot decide about %s: %s.", rows[at].Name, about, rows[at].Error)}
	}
	type place struct{ node, conn string }
	admits := map[place]bool{}
	tightest, strictest := rows[0], (*bucketRow)(nil)
	for n, r := range rows {
		at := place{r.Node, r.Conn}
		before, known := admits[at]
		admits[at] = r.Allowed && (before || !known)
		if r.left() <= tightest.left() {
			tightest = r
		}
		if !r.Allowed && (strictest == nil || strictest.waits() < r.waits()) {
			strictest = &rows[n]
		}
	}
	if strictest == nil {
		return verdict{"yes", fmt.Sprintf("Yes: %s would be admitted. The limit with the fewest tokens is %s, which has %d of %d left.", about, tightest.Name, tightest.Remaining, tightest.Limit)}
	}
	denied := fmt.Sprintf("%s denies %s%s", strictest.Name, about, strictest.why())
	if !slices.Contains(slices.Collect(maps.Values(admits)), true) {
		return verdict{"no", "No: " + denied}
	}
	where := "on node " + strictest.Node
	if strictest.Conn != "" {
		where = "on connection " + strictest.Conn
	}
	return verdict{"depends", fmt.Sprintf("It depends: %s, %s Elsewhere it would be admitted.", where, denied)}
}

// left returns the tokens that are left, of 1.
func (r *bucketRow) left() float64 { return float64(r.Remaining) / float64(r.Limit) }

// waits returns how long a denial lasts.
func (r *bucketRow) waits() time.Duration {
	if r.RetryAfterMs < 0 {
		return 1<<63 - 1
	}
	return time.Duration(r.RetryAfterMs) * time.Millisecond
}

// why ends a sentence about a denial.
func (r *bucketRow) why() string {
	text := fmt.Sprintf(", because %d of %d tokens are left and it costs %d.", r.Remaining, r.Limit, r.Cost)
	if r.Reason != "no_tokens" {
		text = fmt.Sprintf(", because of %s.", strings.ReplaceAll(r.Reason, "_", " "))
	}
	switch {
	case r.RetryAfterMs < 0:
		text += " Waiting does not help."
	case r.RetryAfterMs > 0:
		text += fmt.Sprintf(" It would be admitted in %v.", max(r.waits().Round(time.Second), time.Second))
	}
	return text
}
