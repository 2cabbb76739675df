package outboundtest_test

import (
	"testing"
	"testing/synctest"

	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/outbound/outboundtest"
)

// The test of an implementation runs every case. Name the function TestBudget, put it into a
// _test.go file, and replace outbound.NewMemoryBudget with your constructor. Leave synctest.Test out if
// the budget's clock is in another process, such as a database server.
func Example() {
	testBudget := func(t *testing.T) {
		for _, c := range outboundtest.Cases() {
			t.Run(c.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c.Run(t, outboundtest.Harness{New: func(o *outbound.BudgetOptions) outbound.Budget {
						return outbound.NewMemoryBudget(o)
					}})
				})
			})
		}
	}

	_ = testBudget // "go test" calls it if it is a function TestBudget
}
