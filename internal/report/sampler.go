package report

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/rules"
)

// maxKeys bounds the keys that pass per interval, and so the memory.
const maxKeys = 4096

// Refusals select the refusals that are reported, one of each client per second, and count the others. They are safe for
// concurrent use, and must be initialized.
type Refusals struct {
	sampler

	missed int64 // guarded by mu
}

// A refusedClient is what is sampled together: a user, else the addresses of one customer of a provider, else a
// connection, else all requests.
type refusedClient struct {
	user    registry.User
	network netip.Prefix
	connID  string
}

// Init must be called before Passes.
func (r *Refusals) Init() { r.init(1, time.Second) }

// Passes reports whether the refusal of a client, of whom each argument may be zero, is reported now, and if so, how many
// of all clients were not since the last one.
func (r *Refusals) Passes(user registry.User, ip netip.Addr, connID string) (missed int64, ok bool) {
	var client refusedClient
	switch {
	case user.UserID != "":
		client.user = user
	case ip.IsValid():
		client.network = rules.PrefixOf(ip)
	default:
		client.connID = connID
	}
	key := maphash.Comparable(r.seed, client)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waitLocked(key, time.Now()) > 0 {
		r.missed++
		return 0, false
	}
	missed, r.missed = r.missed, 0
	return missed, true
}

// A sampler is what Refusals and Lines have in common. The fields below mu are guarded by it, as
// those of Lines.
type sampler struct {
	seed        maphash.Seed  // read-only
	interval    time.Duration // read-only
	perInterval int           // read-only

	mu        sync.Mutex
	current   map[uint64]sampledPeriod // by the hash of the key
	previous  map[uint64]sampledPeriod // of the time before currentAt
	currentAt time.Time                // when current was empty
}

// A sampledPeriod is the time in which n reports of a key have passed.
type sampledPeriod struct {
	began time.Time
	n     int
}

func (s *sampler) init(perInterval int, interval time.Duration) {
	s.seed, s.perInterval, s.interval = maphash.MakeSeed(), perInterval, interval
}

// waitLocked returns 0 if a report passes, and otherwise when the next one of its key may pass.
func (s *sampler) waitLocked(key uint64, now time.Time) time.Duration {
	s.rotateLocked(now)
	period, ok := s.current[key]
	if !ok {
		period, ok = s.previous[key]
	}
	if !ok || now.Sub(period.began) >= s.interval {
		period = sampledPeriod{began: now}
	}
	if period.n >= s.perInterval {
		return s.interval - now.Sub(period.began)
	}
	if _, ok := s.current[key]; !ok && len(s.current) >= maxKeys {
		return s.interval
	}
	period.n++
	s.current[key] = period
	return 0
}

// rotateLocked forgets the keys whose latest period has ended. All those in previous have when current is as
// old as a period.
func (s *sampler) rotateLocked(now time.Time) {
	if s.current != nil && now.Sub(s.currentAt) < s.interval {
		return
	}
	s.previous, s.current, s.currentAt = s.current, map[uint64]sampledPeriod{}, now
}
