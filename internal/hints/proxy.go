package hints

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/penstock-go/penstock/clientip"
)

// minForwarded is how many connections of one address bring forwarding headers before there is a warning: more than one
// client has, and 2 % of the default of Limits.ConnsPerIP, above which a proxy that is not trusted is refused.
const minForwarded = 20

// A ProxyWarning writes one line about connections that seem to come from a proxy which is not trusted, so that all
// its clients share the limits of one address. It is for production, too: clients cause no more than the one line,
// which does not contain what they send.
type ProxyWarning struct {
	Write   Write
	Trusted []netip.Prefix

	written atomic.Bool
}

// Opened counts a connection in those of its address whose requests had forwarding headers. ip is the
// address of the client, as TrustedProxies says.
func (w *ProxyWarning) Opened(req *http.Request, ip netip.Addr, forwarded *atomic.Int32) {
	names := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"}
	at := slices.IndexFunc(names, func(name string) bool { return req.Header[name] != nil })
	trusts := func(n netip.Prefix) bool { return n.Contains(ip) }
	if at < 0 || ip != (clientip.TrustedProxies{}).ClientIP(req) || slices.ContainsFunc(w.Trusted, trusts) {
		return
	}
	if forwarded.Add(1) < minForwarded || w.written.Swap(true) {
		return
	}
	option := ""
	if names[at] == "Forwarded" {
		option = ", Header: clientip.HeaderForwarded"
	}
	w.Write(slog.LevelWarn, "many connections with forwarding headers come from an address that is not trusted", slog.String("ip", ip.String()), slog.String("remedy", fmt.Sprintf(
		"if and only if it is a proxy of yours, and writes X-Forwarded-For or Forwarded, set Options.TrustedProxies: clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix(\"%v/%d\")}%s}; "+
			"until then, all its clients share router.Limits.ConnsPerIP. Clients can forge these headers: never trust an address from which they connect directly",
		ip, ip.BitLen(), option)))
}
