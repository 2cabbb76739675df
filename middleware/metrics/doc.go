// Package metrics exports Prometheus metrics of routers and their limits.
//
//	m := metrics.New(prometheus.DefaultRegisterer, nil)
//	m.Router(r)
//	r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{Name: "chat", Observe: m.Limit}))
//
// The guide docs/guides/observability.md explains each metric, and what to do when it changes.
//
// Label values come only from the server: registered types, configured names and fixed sets. A
// client cannot create any. A value outside its set counts as "other", and an unregistered
// message type as "__unknown", which is no valid type.
package metrics
