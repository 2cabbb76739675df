package ratelimit

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// An AccessList names clients that are never limited, and clients that are always rejected. Use
// it as Options.Access, or alone as an ingress function:
//
//	r.UseIngress(list.Ingress)
//
// The zero AccessList names no client. It is safe for concurrent use and must not be copied.
type AccessList struct {
	// Key returns the key that is looked up among the keys of the rules. If nil, it is
	// [KeyPerUser]. It must not change after the first use.
	Key func(router.IngressContext) limit.Key

	rules atomic.Pointer[compiledRules] // nil without rules
}

// AccessRules are the content of an [AccessList].
//
// A client whose key is listed is treated as its key says. Of the prefixes that contain a
// client's address, the longest decides, so an allowed network may contain denied addresses. A
// key or a prefix in both lists is denied. An IPv4 address mapped to IPv6 is an IPv4 address; a
// prefix of mapped addresses is invalid.
type AccessRules struct {
	Allow, Deny         []netip.Prefix
	AllowKeys, DenyKeys []limit.Key
}

var errDenied = &errors.Error{Code: errors.PermissionDenied, Message: "access is denied"}

// An access says how the limit treats a client.
type access uint8

const (
	limited access = iota
	allowed
	denied
)

// compiledRules never change.
type compiledRules struct {
	keys  map[limit.Key]access
	table prefixTable
}

// Replace replaces all rules at once: every message is decided by the old or by the new ones. It
// copies the rules. With an error, which names the invalid prefix, the old rules stay in effect.
func (a *AccessList) Replace(rules AccessRules) error {
	compiled := &compiledRules{keys: make(map[limit.Key]access, len(rules.AllowKeys)+len(rules.DenyKeys))}
	for _, key := range rules.AllowKeys {
		compiled.keys[key] = allowed
	}
	for _, key := range rules.DenyKeys {
		compiled.keys[key] = denied
	}
	all := make([]prefixAccess, 0, len(rules.Allow)+len(rules.Deny))
	for list, prefixes := range [][]netip.Prefix{rules.Allow, rules.Deny} {
		for i, p := range prefixes {
			if !p.IsValid() || p.Addr().Is4In6() {
				return fmt.Errorf("ratelimit: prefix %d of AccessRules.%s is %v; it must be a prefix of IPv4 or IPv6 addresses",
					i, []string{"Allow", "Deny"}[list], p)
			}
			all = append(all, prefixAccess{p.Masked(), []access{allowed, denied}[list]})
		}
	}
	compiled.table = newPrefixTable(all)
	a.rules.Store(compiled)
	return nil
}

// Ingress rejects the messages of denied clients with PERMISSION_DENIED. It is a
// [router.IngressFunc].
func (a *AccessList) Ingress(_ context.Context, in router.IngressContext) error {
	if a.lookup(&in) == denied {
		return errDenied
	}
	return nil
}

func (a *AccessList) lookup(in *router.IngressContext) access {
	rules := a.rules.Load()
	if rules == nil {
		return limited
	}
	if len(rules.keys) > 0 {
		key := KeyPerUser
		if a.Key != nil {
			key = a.Key
		}
		if found, ok := rules.keys[key(*in)]; ok {
			return found
		}
	}
	return rules.table.lookup(in.IP)
}
