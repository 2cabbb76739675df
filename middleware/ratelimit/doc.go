// Package ratelimit decides who may send what, how often and at what cost.
//
// A [Limiter] keeps token buckets; [New] makes it an ingress function of a
// router:
//
//	limiter := memory.NewLimiter(ratelimit.PerSecond(10).Burst(20))
//	r.UseIngress(ratelimit.New(limiter, nil))
//
// Options say which bucket pays for a message and how much:
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
// # What a refused client is told
//
// A message over the limit is answered with RESOURCE_EXHAUSTED and retryAfterMs,
// after which it is admitted if nobody else has spent the tokens. A message that
// costs more than a full bucket holds is answered with FAILED_PRECONDITION:
// waiting cannot help. The router may be told to close the connection instead.
//
// # Exactness
//
// Buckets are kept in whole numbers. What a limiter answers equals what the token
// bucket of real numbers would, on every adapter; see [Units]. Package
// ratelimittest holds adapters to that.
package ratelimit
