// Package metrics shows a router and its limits to Prometheus.
//
//	m := metrics.New(prometheus.DefaultRegisterer, nil)
//	m.Router(r)
//	r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{Name: "chat", Observe: m.Limit}))
//
// The guide docs/guides/observability.md says what each metric tells, and what to do when
// it moves.
//
// Labels come from the server alone: registered types, configured names and fixed sets. A
// client can make none, whatever it sends. What is not in a set counts as "other", and a
// type that nobody registered as "__unknown", which no message can be called.
package metrics
