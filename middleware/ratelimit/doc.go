// Package ratelimit puts limiters of package limit in front of a router: it decides which
// bucket a message is charged to, how much, and what happens if the bucket does not hold the cost.
//
// [New] makes a limiter an ingress function, which runs before the payload is read:
//
//	limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20))
//	r.UseIngress(ratelimit.New(limiter, nil))
//
// Options select the bucket and the cost:
//
//	r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{
//		Key: ratelimit.KeyPerUser,
//		Cost: func(in router.IngressContext) int64 {
//			if in.Type == "SEARCH" {
//				return 5
//			}
//			return 1
//		},
//	}))
//
// [NewAll] combines limits with different keys, such as per user and per tenant. [Tiers] chooses
// the limiter by the client's plan, [Concurrency] bounds the messages that are handled at the
// same time, and [Connections] bounds the open connections of a user on all nodes. Package
// middleware/httplimit limits the requests of an HTTP handler, such as connection attempts.
//
// # What the client receives
//
// A message over the limit is answered with RESOURCE_EXHAUSTED and retryAfterMs, after which
// it is admitted unless other messages have taken the tokens. A message that costs more than a
// full bucket holds is answered with FAILED_PRECONDITION, because no wait can help. The router
// can close the connection instead.
package ratelimit
