package outbound

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// limits remembers which limits, in addition to its own, the requests to each route count
// against: the bucket that the route shares with other routes, and further policies of the route.
// It learns them from the responses. A route keeps a limit for an hour after the last response
// that named it.
type limits struct {
	mu      sync.Mutex // guards everything below
	routes  map[string]*routeLimits
	open    map[string]openLimit // by name, of routes and other limits
	sweepAt time.Time
}

// An openLimit is the highest number that has remained of a limit that responses do not state.
type openLimit struct {
	highest int64
	at      time.Time
}

type routeLimits struct {
	policy string // the policy that the route's own budget counts
	others []otherLimit
}

// An otherLimit has a name that is unique among the routes and limits of a Budget.
type otherLimit struct {
	name    string
	namedAt time.Time
}

const (
	limitTTL           = time.Hour
	limitSweepInterval = time.Minute
)

// of returns the names of the other limits of a route.
func (l *limits) of(route string) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.routes[route]; r != nil {
		for _, other := range r.others {
			if time.Since(other.namedAt) < limitTTL {
				names = append(names, other.name)
			}
		}
	}
	return names
}

// learn returns the status of the route and of the other limits that a response names.
func (l *limits) learn(route string, req *http.Request, resp *response) (own Status, others map[string]Status) {
	own, others = resp.status, map[string]Status{}
	if resp.status.Global || resp.bucket == "" && len(resp.policies) == 0 && !resp.open {
		return own, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if resp.open {
		own.Limit = l.highest(route, own.Limit)
	}
	if resp.bucket == "" && len(resp.policies) == 0 {
		return own, nil
	}
	r := l.route(route)
	if len(resp.policies) > 0 {
		own = Status{RetryAfter: resp.status.RetryAfter}
		if r.policy == "" {
			r.policy = shortest(resp.policies)
		}
	}
	for _, p := range resp.policies {
		if p.open {
			p.status.Limit = l.highest(route+" "+p.name, p.status.Limit)
		}
		if p.name == r.policy {
			own.Limit, own.Remaining, own.ResetAfter = p.status.Limit, p.status.Remaining, p.status.ResetAfter
			continue
		}
		others["policy "+route+" "+p.name] = p.status
	}
	if resp.bucket != "" {
		others["bucket "+req.URL.Host+" "+topLevelResource(req.URL.Path)+" "+resp.bucket] = own
	}
	for name := range others {
		r.add(name)
	}
	return own, others
}

// route returns the limits of a route, and removes expired ones once per limitSweepInterval.
func (l *limits) route(name string) *routeLimits {
	l.sweep(time.Now())
	r := l.routes[name]
	if r == nil {
		r = &routeLimits{}
		l.routes[name] = r
	}
	return r
}

func (l *limits) sweep(now time.Time) {
	if !now.After(l.sweepAt) {
		return
	}
	l.sweepAt = now.Add(limitSweepInterval)
	for name, r := range l.routes {
		if r.removeExpired(now); len(r.others) == 0 {
			delete(l.routes, name)
		}
	}
	for name, o := range l.open {
		if now.Sub(o.at) >= limitTTL {
			delete(l.open, name)
		}
	}
}

// highest returns the highest number that has remained of a limit. It is the limit as soon as a window has begun.
func (l *limits) highest(name string, n int64) int64 {
	now := time.Now()
	l.sweep(now)
	n = max(n, l.open[name].highest)
	l.open[name] = openLimit{n, now}
	return n
}

func (r *routeLimits) removeExpired(now time.Time) {
	kept := r.others[:0]
	for _, other := range r.others {
		if now.Sub(other.namedAt) < limitTTL {
			kept = append(kept, other)
		}
	}
	r.others = kept
}

// add records that a response has named a limit. A route has at most 2*maxPolicies.
func (r *routeLimits) add(name string) {
	oldest := 0
	for i := range r.others {
		if r.others[i].name == name {
			r.others[i].namedAt = time.Now()
			return
		}
		if r.others[i].namedAt.Before(r.others[oldest].namedAt) {
			oldest = i
		}
	}
	if len(r.others) == 2*maxPolicies {
		r.others[oldest] = otherLimit{name, time.Now()}
		return
	}
	r.others = append(r.others, otherLimit{name, time.Now()})
}

// shortest returns the name of the policy with the shortest known window. A Budget then counts
// the same policy in the route in every process.
func shortest(policies []policy) string {
	best := policies[0]
	for _, p := range policies[1:] {
		if p.window > 0 && (best.window == 0 || p.window < best.window) {
			best = p
		}
	}
	return best.name
}

// topLevelResource returns the part of a path of Discord's API that distinguishes limits of the
// same bucket: the channel, guild or webhook ID, or "".
func topLevelResource(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts[:len(parts)-1] {
		switch part {
		case "channels", "guilds":
			return strings.Join(parts[i:i+2], "/")
		case "webhooks": // the token belongs to the resource
			return strings.Join(parts[i:min(i+3, len(parts))], "/")
		}
	}
	return ""
}
