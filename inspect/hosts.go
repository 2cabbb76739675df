package inspect

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// mustBeHosts returns hosts in lower case. It panics if one is no host.
func mustBeHosts(hosts []string) []string {
	lower := make([]string, len(hosts))
	for n, host := range hosts {
		if host == "" || strings.ContainsAny(host, "/*@ ") {
			panic(fmt.Sprintf("inspect: Options.Hosts[%d] is %q; it must be a host, such as ops.example.com or localhost:9090", n, host))
		}
		lower[n] = strings.ToLower(host)
	}
	return lower
}

// servesHost reports whether the host of a request is one of Options.Hosts, if there are any.
func (i *Inspector) servesHost(host string) bool {
	host = strings.ToLower(host)
	if len(i.hosts) == 0 || slices.Contains(i.hosts, host) {
		return true
	}
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return false
	}
	if strings.Contains(name, ":") { // of IPv6
		name = "[" + name + "]"
	}
	return slices.Contains(i.hosts, name)
}
