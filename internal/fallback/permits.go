package fallback

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// permits bound what clients may have at the same time, such as requests of a kind: half of it may be one client's.
type permits struct {
	mu        sync.Mutex
	free      int
	perClient int
	used      map[netip.Prefix]int // by address of the client; if it is unknown, perClient does not apply
}

// penalty is how long a permit stays in use after a request for a connection that does not exist: guesses of one
// client cannot occupy other nodes.
const penalty = time.Second

func (p *permits) init(n int) { p.free, p.perClient, p.used = n, (n+1)/2, map[netip.Prefix]int{} }

func (p *permits) acquire(client netip.Prefix) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == 0 || client.IsValid() && p.used[client] >= p.perClient {
		return false
	}
	p.free--
	p.used[client]++
	return true
}

// release follows a request that was answered with a status.
func (p *permits) release(client netip.Prefix, status int) {
	if status == http.StatusConflict {
		time.AfterFunc(penalty, func() { p.release(client, 0) })
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	if p.used[client]--; p.used[client] == 0 {
		delete(p.used, client)
	}
}
