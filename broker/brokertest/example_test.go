package brokertest_test

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker/brokertest"
)

// A test calls Run of each case. This example calls Check, which returns the error.
func ExampleCases() {
	broken := 0
	for _, c := range brokertest.Cases() {
		err := c.Check(brokertest.Cluster{
			Connect:     memory.NewBroker().Connect,
			Timeout:     10 * time.Second,
			QuietPeriod: 5 * time.Millisecond,
		})
		if err != nil {
			broken++
			fmt.Printf("%s: %v\nrule: %s\n", c.Name, err, c.Rule)
		}
	}
	fmt.Println("broken rules:", broken)
	// Output: broken rules: 0
}
