// Package access names clients that no limit applies to, and clients that are always rejected.
// Packages middleware/ratelimit and middleware/httplimit consult a [List], and one list may serve
// both.
package access

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/penstock-go/penstock/limit"
)

// A List treats clients by its [Rules]. The zero List names no client. It is safe for concurrent
// use and must not be copied.
type List struct {
	rules atomic.Pointer[compiledRules] // nil without rules
}

// Rules are the content of a [List].
//
// A client whose key is listed is treated as its key says. Of the prefixes that contain a
// client's address, the longest decides, so an allowed network may contain denied addresses. A
// key or a prefix in both lists is denied. An IPv4 address mapped to IPv6 is an IPv4 address; a
// prefix of mapped addresses is invalid.
type Rules struct {
	Allow, Deny         []netip.Prefix
	AllowKeys, DenyKeys []limit.Key
}

// An Access says how a client is treated.
type Access uint8

// The treatments of a client.
const (
	Limited Access = iota // no rule names the client: limits apply to it
	Allowed               // no limit applies to the client
	Denied                // the client is rejected
)

// compiledRules never change.
type compiledRules struct {
	keys  map[limit.Key]Access
	table prefixTable
}

// Replace replaces all rules at once: every client is treated by the old or by the new ones. It
// copies the rules. With an error, which names the invalid prefix, the old rules stay in effect.
func (l *List) Replace(rules Rules) error {
	compiled := &compiledRules{keys: make(map[limit.Key]Access, len(rules.AllowKeys)+len(rules.DenyKeys))}
	for _, key := range rules.AllowKeys {
		compiled.keys[key] = Allowed
	}
	for _, key := range rules.DenyKeys {
		compiled.keys[key] = Denied
	}
	all := make([]prefixAccess, 0, len(rules.Allow)+len(rules.Deny))
	for list, prefixes := range [][]netip.Prefix{rules.Allow, rules.Deny} {
		for i, p := range prefixes {
			if !p.IsValid() || p.Addr().Is4In6() {
				return fmt.Errorf("access: prefix %d of Rules.%s is %v; it must be a prefix of IPv4 or IPv6 addresses",
					i, []string{"Allow", "Deny"}[list], p)
			}
			all = append(all, prefixAccess{p.Masked(), []Access{Allowed, Denied}[list]})
		}
	}
	compiled.table = newPrefixTable(all)
	l.rules.Store(compiled)
	return nil
}

// Lookup returns how a client is treated. An invalid address is in no prefix.
func (l *List) Lookup(key limit.Key, ip netip.Addr) Access {
	rules := l.rules.Load()
	if rules == nil {
		return Limited
	}
	if found, ok := rules.keys[key]; ok {
		return found
	}
	return rules.table.lookup(ip)
}
