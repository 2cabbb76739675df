package redistest

import "github.com/redis/go-redis/v9"

// An Address says how another process reaches a server, or the master under a sentinel. It can be encoded as JSON.
type Address struct {
	Addr   string // of the server, of a proxy before it, or of the sentinel
	Master string // the sentinel's name of the master; "" without a sentinel
}

// Address returns how another process reaches the master.
func (s *Sentinel) Address() Address {
	return Address{s.server.Addr, group}
}

// Client returns a client with the default options. The caller closes it, or ends.
func (a Address) Client() redis.UniversalClient {
	if a.Master == "" {
		return redis.NewClient(&redis.Options{Addr: a.Addr})
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: a.Master, SentinelAddrs: []string{a.Addr}})
}
