// Package brokertest tests brokers against the contract of [broker.Broker]. Each sentence of the
// contract is a case, whose failure prints the sentence.
//
//	for _, c := range brokertest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			c.Run(t, brokertest.Cluster{
//				Connect:     mine.NewBroker().Connect,
//				Timeout:     10 * time.Second,
//				QuietPeriod: 20 * time.Millisecond,
//			})
//		})
//	}
//
// [HistoryCases] does the same for the contract of [broker.HistoryNode]. Run both for a broker that
// keeps histories.
//
// A broker that stays in this process can run in a testing/synctest bubble, where waiting takes
// no time.
//
// [Faulty] is for the other side of the contract: a simulated store with faults, on which routers and
// applications are tested.
package brokertest
