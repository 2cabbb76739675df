// Package ratelimittest holds limiters to the contract of [ratelimit.Limiter].
// Each sentence of it is a case, which says the rule in words when it fails.
//
// The cases need a limiter whose clock they can move. A limiter that reads the
// time in this process runs in a testing/synctest bubble:
//
//	for _, c := range ratelimittest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			synctest.Test(t, func(t *testing.T) {
//				c.Run(t, ratelimittest.Harness{
//					New:   func(p ratelimit.Policy) ratelimit.Limiter { return mine.NewLimiter(p) },
//					Sleep: time.Sleep,
//				})
//			})
//		})
//	}
package ratelimittest
