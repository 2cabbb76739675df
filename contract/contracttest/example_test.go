package contracttest_test

import (
	"testing"

	"github.com/penstock-go/penstock/contract/contracttest"
)

// The test fails when a message changes and the generated file does not.
func ExampleCheck() {
	_ = func(t *testing.T) { // func TestContract(t *testing.T)
		contracttest.Check(t, newRouter(), "web/src/contract.ts", nil)
	}
}
