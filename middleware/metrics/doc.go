// Package metrics exports Prometheus metrics of routers and their limits.
//
//	m := metrics.New(prometheus.DefaultRegisterer, nil)
//	m.Router(r)
//	r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{Name: "chat", Observe: m.Limit}))
//
// The guide docs/guides/observability.md describes each metric, the alerts and the dashboard.
//
// Label values come only from the server: registered message types, configured names and fixed
// sets. A client cannot create a label value. A value outside its set counts as "other", and an
// unregistered message type as "__unknown", which cannot be registered.
package metrics
