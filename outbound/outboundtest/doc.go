// Package outboundtest holds windows to the contract of [outbound.Windows]. Windows that
// read the time in this process can run in a testing/synctest bubble; with others, the
// cases take about ten seconds, one after the other.
//
//	for _, c := range outboundtest.Cases() {
//		t.Run(c.Name, func(t *testing.T) {
//			synctest.Test(t, func(t *testing.T) {
//				c.Run(t, func(o *outbound.WindowsOptions) outbound.Windows { return mine.NewWindows(o) })
//			})
//		})
//	}
package outboundtest
