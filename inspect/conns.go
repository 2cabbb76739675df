package inspect

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// connQuery selects connections. The fields that are set must all apply.
type connQuery struct {
	ID     string `json:"id,omitempty"`
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"`  // with the Tenant, even if that is ""
	IP     string `json:"ip,omitempty"`    // an address or a prefix such as 192.0.2.0/24
	Slow   bool   `json:"slow,omitempty"`  // sorted by the bytes that wait to be sent, the most first; has no next page
	After  string `json:"after,omitempty"` // the Next of the page before
}

// A connRow is a connection in a list.
type connRow struct {
	ID           string    `json:"id"`
	Node         string    `json:"node"`
	Tenant       string    `json:"tenant"`
	User         string    `json:"user"`
	IP           string    `json:"ip"`
	Transport    string    `json:"transport"`
	Subprotocol  string    `json:"subprotocol"`
	OpenedAt     time.Time `json:"openedAt"`
	QueuedBytes  int       `json:"queuedBytes"` // that wait or are being written
	Queued       int       `json:"queued"`      // messages
	OldestMs     int64     `json:"oldestMs"`    // age of the oldest of them
	Backpressure bool      `json:"backpressure"`
	Session      bool      `json:"session"` // the client can resume it
	RTTMs        float64   `json:"rttMs"`   // round trip of the latest heartbeat; 0 if none has measured it
}

type connPage struct {
	Rows  []connRow `json:"rows"`
	Total int       `json:"total"` // that match, on the nodes that have answered
	Next  string    `json:"next,omitempty"`
}

// A connFilter is a parsed connQuery.
type connFilter struct {
	connQuery

	network netip.Prefix // zero if IP is ""
	after   connPlace
}

// A connPlace is a place in the order of connections: when they were opened, then by ID.
type connPlace struct {
	openedAt int64 // in nanoseconds since 1970
	id       string
}

func placeOf(openedAt time.Time, id string) connPlace { return connPlace{openedAt.UnixNano(), id} }

func (p connPlace) compare(q connPlace) int {
	return cmp.Or(cmp.Compare(p.openedAt, q.openedAt), cmp.Compare(p.id, q.id))
}

func (p connPlace) String() string { return fmt.Sprintf("%d/%s", p.openedAt, p.id) }

func (q connQuery) parse() (f connFilter, err error) {
	f.connQuery = q
	if q.After != "" {
		at, id, _ := strings.Cut(q.After, "/")
		if f.after.openedAt, err = strconv.ParseInt(at, 10, 64); err != nil {
			return f, errors.Errorf(errors.InvalidArgument, "after is not the next of a page")
		}
		f.after.id = id
	}
	if q.IP == "" {
		return f, nil
	}
	if address, err := netip.ParseAddr(q.IP); err == nil {
		f.network = netip.PrefixFrom(address, address.BitLen())
		return f, nil
	}
	if f.network, err = netip.ParsePrefix(q.IP); err != nil {
		return f, errors.Errorf(errors.InvalidArgument, "ip is %q; it must be an address or a prefix such as 192.0.2.0/24", q.IP)
	}
	return f, nil
}

// matches reports whether a connection is selected. It reads what is set before the connection is
// opened first.
func (f *connFilter) matches(c *router.Conn) bool {
	if f.network.IsValid() && !f.network.Contains(c.IP()) {
		return false
	}
	if f.User == "" && f.Tenant == "" {
		return true
	}
	id := c.Identity()
	return id.TenantID == f.Tenant && (f.User == "" || id.UserID == f.User)
}

// candidates calls f for the connections among which those that match are: from an index if there
// is one. A scan makes pauses.
func (i *Inspector) candidates(q *connFilter, f func(*router.Conn)) {
	one := func(id string) {
		if c := i.router.Conn(id); c != nil {
			f(c)
		}
	}
	switch {
	case q.ID != "":
		one(q.ID)
	case q.User != "":
		for _, id := range i.access.UserConns(q.Tenant, q.User) {
			one(id)
		}
	default:
		n := 0
		for c := range i.router.Conns() {
			if n++; n%scanSlice == 0 {
				time.Sleep(scanPause)
			}
			f(c)
		}
	}
}

// A scan looks at scanSlice connections in some 100 microseconds, and then leaves the processor and
// its caches to the messages of clients. One of 100,000 connections takes about 60 ms.
const (
	scanSlice = 2048
	scanPause = time.Millisecond
)

// localConns returns the first connections of this node in the order of the query.
func (i *Inspector) localConns(_ context.Context, q connQuery) (page connPage, err error) {
	filter, err := q.parse()
	if err != nil {
		return page, err
	}
	var first firstConns
	i.candidates(&filter, func(c *router.Conn) {
		if !filter.matches(c) {
			return
		}
		page.Total++
		if q.Slow {
			if stats := c.QueueStats(); stats.Bytes+stats.WritingBytes > 0 {
				first.add(c, connPlace{-int64(stats.Bytes + stats.WritingBytes), c.ID()})
			}
			return
		}
		if at := placeOf(c.OpenedAt(), c.ID()); at.compare(filter.after) > 0 {
			first.add(c, at)
		}
	})
	for _, c := range first.conns {
		page.Rows = append(page.Rows, i.rowOf(c))
	}
	return page, nil
}

// firstConns keeps the first maxRows+1 connections: one more than a page, so that it is known
// whether there is another page.
type firstConns struct {
	places []connPlace
	conns  []*router.Conn
}

func (f *firstConns) add(c *router.Conn, at connPlace) {
	n := len(f.places)
	if n > maxRows && at.compare(f.places[n-1]) > 0 {
		return
	}
	index, _ := slices.BinarySearchFunc(f.places, at, connPlace.compare)
	f.places, f.conns = slices.Insert(f.places, index, at), slices.Insert(f.conns, index, c)
	if n > maxRows {
		f.places, f.conns = f.places[:n], f.conns[:n]
	}
}

func (i *Inspector) rowOf(c *router.Conn) connRow {
	id, queue := c.Identity(), c.QueueStats()
	row := connRow{
		ID: c.ID(), Node: i.router.NodeID(), Tenant: id.TenantID, User: id.UserID, Transport: string(c.Transport()), Subprotocol: c.Subprotocol(), OpenedAt: c.OpenedAt(),
		QueuedBytes: queue.Bytes + queue.WritingBytes, Queued: queue.Messages + queue.WritingMessages,
		OldestMs: queue.OldestAge.Milliseconds(), Backpressure: queue.Backpressure, Session: c.Resumable(),
		RTTMs: float64(c.RTT().Microseconds()) / 1000,
	}
	if c.IP().IsValid() {
		row.IP = c.IP().String()
	}
	return row
}

// listConns returns connections of all nodes.
func (i *Inspector) listConns(ctx context.Context, q connQuery) (any, error) {
	answers, states, err := gather[connPage](ctx, i, askConns, q)
	if err != nil {
		return nil, err
	}
	var merged connPage
	for _, a := range answers {
		merged.Total += a.Result.Total
		merged.Rows = append(merged.Rows, a.Result.Rows...)
	}
	slices.SortFunc(merged.Rows, func(a, b connRow) int {
		if q.Slow {
			return cmp.Or(cmp.Compare(b.QueuedBytes, a.QueuedBytes), cmp.Compare(a.ID, b.ID))
		}
		return placeOf(a.OpenedAt, a.ID).compare(placeOf(b.OpenedAt, b.ID))
	})
	if len(merged.Rows) > maxRows && !q.Slow {
		last := merged.Rows[maxRows-1]
		merged.Next = placeOf(last.OpenedAt, last.ID).String()
	}
	merged.Rows = firstRows(merged.Rows)
	return struct {
		Nodes nodeStates `json:"nodes"`
		connPage
	}{states, merged}, nil
}
