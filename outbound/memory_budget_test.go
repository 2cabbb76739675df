package outbound_test

import (
	"testing"
	"testing/synctest"

	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/outbound/outboundtest"
)

func TestMemoryBudget_PassesTheConformanceSuite(t *testing.T) {
	for _, c := range outboundtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, outboundtest.Harness{New: func(o *outbound.BudgetOptions) outbound.Budget { return outbound.NewMemoryBudget(o) }})
			})
		})
	}
}
