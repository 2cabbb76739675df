package ratelimit

import (
	"github.com/penstock-go/penstock/internal/ipprefix"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// The first part of a key says what its other parts are, so that a user named "192.0.2.1"
// does not share a bucket with that address.
const (
	kindUser = "user"
	kindConn = "conn"
	kindIP   = "ip"
	kindType = "type"
)

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

// KeyPerIP gives every address a bucket: every IPv4 address and every /64 of IPv6, the smallest
// prefix that a customer has (RFC 6177). A connection whose address is unknown has a bucket of
// its own.
func KeyPerIP(in router.IngressContext) limit.Key {
	switch {
	case !in.IP.IsValid():
		return KeyPerConn(in)
	case in.IP.Is4():
		return limit.Key{kindIP, in.IP.String()}
	default:
		return limit.Key{kindIP, ipprefix.Of(in.IP).String()}
	}
}

// KeyPerType gives every message type a bucket that all clients share.
func KeyPerType(in router.IngressContext) limit.Key { return limit.Key{kindType, in.Type} }

// CostPerKiB makes a message cost one token for every started KiB of its size, so that a
// policy limits bytes.
func CostPerKiB(in router.IngressContext) int64 { return (in.Size + 1023) / 1024 }
