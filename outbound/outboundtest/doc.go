// Package outboundtest is the conformance suite for implementations of [outbound.Budget]. See
// the example.
//
// The cases take about ten seconds in real time when they run one after the other. On a busy
// machine, a case is repeated if it was delayed and fails, at most five times. A Budget that
// reads the time only in this process can run them in a testing/synctest bubble, where they take
// no time:
//
//	for _, c := range outboundtest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			synctest.Test(t, func(t *testing.T) { c.Run(t, outboundtest.Harness{New: newBudget}) })
//		})
//	}
package outboundtest
