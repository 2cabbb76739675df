package ratelimit

import (
	"fmt"

	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// The first part of a key says what its other parts are, so that a user named "192.0.2.1"
// does not share a bucket with that address.
const (
	kindUser   = "user"
	kindTenant = "tenant"
	kindConn   = "conn"
	kindIP     = "ip"
	kindType   = "type"
)

// scopeOf returns which connections share the bucket of a key.
func scopeOf(key limit.Key) router.LimitScope {
	switch kind, noID := key[0], key[1] == "" && key[2] == ""; {
	case kind == kindConn:
		return router.ScopeConnection
	case noID: // shared by all that have no tenant, for example
		return router.ScopeServer
	case kind == kindUser:
		return router.ScopeUser
	case kind == kindTenant:
		return router.ScopeTenant
	case kind == kindIP:
		return router.ScopeIP
	default:
		return router.ScopeServer
	}
}

// KeyPerUserPerType gives every user a bucket for every message type. An anonymous connection
// counts as a user.
func KeyPerUserPerType(in router.IngressContext) limit.Key {
	key := KeyPerUser(in)
	key[3] = in.Type
	return key
}

// KeyPerUserOrIPPerType is KeyPerUserPerType, except that all anonymous connections from one
// address count as one user. It is the default.
func KeyPerUserOrIPPerType(in router.IngressContext) limit.Key {
	if in.Identity.UserID == "" {
		key := KeyPerIP(in)
		key[3] = in.Type
		return key
	}
	return KeyPerUserPerType(in)
}

// KeyPerUser gives every user one bucket for all message types. An anonymous connection counts
// as a user.
func KeyPerUser(in router.IngressContext) limit.Key {
	if in.Identity.UserID == "" {
		return KeyPerConn(in)
	}
	return limit.Key{kindUser, in.Identity.TenantID, in.Identity.UserID}
}

// KeyPerConn gives every connection a bucket. A client that reconnects starts with a full bucket.
func KeyPerConn(in router.IngressContext) limit.Key { return limit.Key{kindConn, in.ConnID} }

// KeyPerIP is KeyPerIPPrefix(32, 64): it gives every IPv4 address and every /64 of IPv6 a bucket.
// A /64 is the smallest prefix that a customer has (RFC 6177).
func KeyPerIP(in router.IngressContext) limit.Key {
	return keyPerIPPrefix(in, rules.PrefixBitsV4, rules.PrefixBitsV6)
}

// KeyPerIPPrefix returns a key function that gives every prefix of addresses a bucket: every
// v4Bits of IPv4, from 1 to 32, and every v6Bits of IPv6, from 1 to 128. It panics if a length is
// invalid. An IPv4 address mapped to IPv6 is an IPv4 address. A connection whose address is
// unknown has a bucket of its own.
//
//	ratelimit.KeyPerIPPrefix(24, 48) // networks of a provider's customers
func KeyPerIPPrefix(v4Bits, v6Bits int) func(router.IngressContext) limit.Key {
	if err := rules.CheckPrefixBits(v4Bits, v6Bits); err != nil {
		panic(fmt.Sprintf("ratelimit: %v", err))
	}
	return func(in router.IngressContext) limit.Key { return keyPerIPPrefix(in, v4Bits, v6Bits) }
}

func keyPerIPPrefix(in router.IngressContext, v4Bits, v6Bits int) limit.Key {
	if !in.IP.IsValid() {
		return KeyPerConn(in)
	}
	return limit.Key{kindIP, rules.PrefixName(in.IP, v4Bits, v6Bits)}
}

// KeyPerType gives every message type a bucket that all clients share.
func KeyPerType(in router.IngressContext) limit.Key { return limit.Key{kindType, in.Type} }

// CostPerKiB makes a message cost one token for every started KiB of its size, so that a
// policy limits bytes.
func CostPerKiB(in router.IngressContext) int64 { return (in.Size + 1023) / 1024 }
