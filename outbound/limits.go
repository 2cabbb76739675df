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
	sweepAt time.Time
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
	if resp.status.Global || resp.bucket == "" && len(resp.policies) == 0 {
		return own, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.route(route)
	if len(resp.policies) > 0 {
		own = Status{RetryAfter: resp.status.RetryAfter}
		if r.policy == "" {
			r.policy = shortest(resp.policies)
		}
	}
	for _, p := range resp.policies {
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
	if now := time.Now(); now.After(l.sweepAt) {
		l.sweepAt = now.Add(limitSweepInterval)
		for name, r := range l.routes {
			if r.removeExpired(now); len(r.others) == 0 {
				delete(l.routes, name)
			}
		}
	}
	r := l.routes[name]
	if r == nil {
		r = &routeLimits{}
		l.routes[name] = r
	}
	return r
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
