package contract_test

import (
	"testing"

	"github.com/penstock-go/penstock/contract/contracttest"
)

func TestContract_IsAsInTestdata(t *testing.T) {
	r := kitchenRouter()
	for _, name := range []string{"kitchen.ts", "kitchen.asyncapi.json", "kitchen.schema.json"} {
		contracttest.Check(t, r, "testdata/"+name, kitchenOptions())
	}
}
