// Package limittest tests limiters against the contract of [limit.Limiter]. Each sentence of
// the contract is a case, whose failure prints the sentence.
//
// The cases need a limiter whose clock they can move. A limiter that reads the time in this
// process runs in a testing/synctest bubble:
//
//	for _, c := range limittest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			synctest.Test(t, func(t *testing.T) {
//				c.Run(t, limittest.Harness{
//					New:   func(p limit.Policy) limit.Limiter { return mine.NewLimiter(p) },
//					Sleep: time.Sleep,
//				})
//			})
//		})
//	}
//
// [EqualsModel], [PolicyChanges], [ClockGoesBackwards] and [IntervalBound] find with random and
// concurrent calls what the cases miss. [AllOf], [CooldownCases], [SlidingLogCases], [SlidingCounterCases],
// [QuotaCases] and [Semaphore] test the other parts of package limit. They need a limiter whose
// clock they can move, and they test the behavior under changed policies and steps of the clock if
// it has a shared store.
package limittest
