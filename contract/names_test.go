package contract_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/contract/internal/shop"
)

type pair[K comparable, V any] struct {
	Key   K
	Value V
}

type record struct{ X int }

func TestTypeScript_NamesOfTypes(t *testing.T) {
	for name, tt := range map[string]struct {
		message any
		want    []string
	}{
		"generic":            {Page[Circle]{}, []string{"PageOfCircle"}},
		"generic of generic": {Page[Page[Circle]]{}, []string{"PageOfPageOfCircle", "PageOfCircle"}},
		"two arguments":      {pair[string, map[string][]*Circle]{}, []string{"PairOfStringAndCirclePointerListByString"}},
		"same name": {struct {
			A Item
			B shop.Item
		}{}, []string{"ContractTestItem", "ShopItem"}},
		"alone": {struct{ B shop.Item }{}, []string{"Item"}},
		"same name inside": {struct {
			A Page[Item]
			B Page[shop.Item]
		}{}, []string{"ContractTestPageOfContractTestItem", "ContractTestPageOfShopItem"}},
		"not exported":         {struct{ R pair[int, int] }{}, []string{"PairOfIntAndInt"}},
		"used by the contract": {struct{ R record }{}, []string{"ContractTestRecord"}},
	} {
		c, err := contract.New(describe(reflect.TypeOf(tt.message), true), nil)
		require.NoError(t, err, name)
		for _, want := range tt.want {
			assert.Contains(t, string(c.TypeScript()), "export interface "+want+" {", name)
		}
	}
}

func TestNew_RejectsTypesWhosePackagesHaveTheSameName(t *testing.T) {
	type Item struct{ Local bool }
	_, err := contract.New(describe(reflect.TypeFor[struct {
		A Item
		B itemOfPackage
	}](), true), nil)
	assert.ErrorContains(t, err, "contract: the name ContractTestItem is that of several types: "+
		"github.com/penstock-go/penstock/contract_test.Item, github.com/penstock-go/penstock/contract_test.Item; rename one")
}

type itemOfPackage = Item
