package ratelimit

import (
	"hash/maphash"
	"net/netip"

	"github.com/penstock-go/penstock/router"
)

// A Key names a bucket by up to four parts. Keys are equal if all their parts
// are: no part can be forged with a separator.
type Key [4]string

// Hash returns a hash of the key's parts and their places, which is never 0. Whoever
// does not know the seed cannot find keys that share one.
func (k *Key) Hash(seed maphash.Seed) uint64 {
	const odd = 0x9e3779b97f4a7c15 // keeps equal parts in different places apart
	h, place := uint64(odd), uint64(1)
	for i := range k {
		if k[i] != "" {
			h += maphash.String(seed, k[i]) * place
		}
		place *= odd
	}
	return max(h, 1)
}

// The first part of a key says what the others are, so that a user called
// "192.0.2.1" has nothing to do with that address.
const (
	kindUser = "user"
	kindConn = "conn"
	kindIP   = "ip"
	kindType = "type"
)

// KeyPerUserPerType gives every user a bucket for every type of message. Each
// anonymous connection counts as a user of its own.
func KeyPerUserPerType(in router.IngressContext) Key {
	key := KeyPerUser(in)
	key[3] = in.Type
	return key
}

// KeyPerUserOrIPPerType is KeyPerUserPerType, but anonymous connections from one
// address count as one user. It is the default.
func KeyPerUserOrIPPerType(in router.IngressContext) Key {
	if in.Identity.UserID == "" {
		key := KeyPerIP(in)
		key[3] = in.Type
		return key
	}
	return KeyPerUserPerType(in)
}

// KeyPerUser gives every user a bucket for everything. Each anonymous connection
// counts as a user of its own.
func KeyPerUser(in router.IngressContext) Key {
	if in.Identity.UserID == "" {
		return KeyPerConn(in)
	}
	return Key{kindUser, in.Identity.TenantID, in.Identity.UserID}
}

// KeyPerConn gives every connection a bucket. A client gets a fresh one by
// connecting again.
func KeyPerConn(in router.IngressContext) Key { return Key{kindConn, in.ConnID} }

// KeyPerIP gives every address a bucket: every IPv4 address, and every /64 of
// IPv6, which is what one customer has at the least (RFC 6177). A connection
// whose address is unknown has a bucket of its own.
func KeyPerIP(in router.IngressContext) Key {
	if !in.IP.IsValid() {
		return KeyPerConn(in)
	}
	return Key{kindIP, network(in.IP)}
}

func network(ip netip.Addr) string {
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// KeyPerType gives every type of message a bucket that all clients share.
func KeyPerType(in router.IngressContext) Key { return Key{kindType, in.Type} }

// CostPerKiB makes a message cost one token for every KiB that it has begun, so
// that a policy becomes a limit of bytes.
func CostPerKiB(in router.IngressContext) int64 { return (in.Size + 1023) / 1024 }
