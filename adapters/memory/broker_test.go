package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker/brokertest"
)

func TestBroker_KeepsContract(t *testing.T) {
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, brokertest.Cluster{Connect: memory.NewBroker().Connect, Timeout: time.Second, QuietPeriod: time.Second})
			})
		})
	}
}
