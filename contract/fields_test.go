package contract_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
)

// Structs that embed others with equal names.
type (
	deep struct {
		A int `json:"a"`
		B int `json:"b"`
		C int
		D int `json:"d"`
	}
	left struct {
		deep

		A string `json:"a"`
		C string `json:"C"`
		E int
	}
	right struct {
		B string `json:"b"`
		C string
		E int
	}

	// Shallow has a twice, b twice at different depths, C once with a tag, and e twice without preference.
	Shallow struct {
		left
		right

		D bool `json:"d"`
	}
	Named struct {
		Right right `json:"right"`
		left  `json:"left"`
	}
	Explicit struct {
		Right right `json:",embed"`
	}
	Again struct {
		*Again

		X int `json:"x"`
	}
)

func TestJSONSchema_HasTheFieldsThatAreEncoded(t *testing.T) {
	for want, message := range map[string]any{
		"[C a b d]":    &Shallow{},
		"[left right]": &Named{},
		"[C E b]":      &Explicit{},
		"[x]":          &Again{},
	} {
		typ := reflect.TypeOf(message).Elem()
		c, err := contract.New(describe(typ, true), nil)
		require.NoError(t, err)
		_, def := definition(t, c, typ.Name())
		_, value := encoded(t, message)
		assert.Equal(t, slices.Sorted(maps.Keys(value.(map[string]any))), slices.Sorted(maps.Keys(def.Properties)), typ)
		assert.Equal(t, want, fmt.Sprint(slices.Sorted(maps.Keys(def.Properties))), typ)
	}
}

// TestJSONSchema_RequiresWhatIsAlwaysEncoded finds members that are wrongly optional; that none is wrongly
// required follows from TestJSONSchema_AcceptsWhatTheRouterEncodes.
func TestJSONSchema_RequiresWhatIsAlwaysEncoded(t *testing.T) {
	_, def := definition(t, kitchenContract(t), "Everything")
	present := map[string]int{}
	const seeds = 60
	for seed := range uint64(seeds) {
		var m Everything
		generator{rand.New(rand.NewPCG(seed, 3))}.fill(reflect.ValueOf(&m).Elem(), false, 2)
		if seed == 0 {
			m = Everything{}
		}
		_, value := encoded(t, &m)
		for name := range value.(map[string]any) {
			present[name]++
		}
	}
	for name := range def.Properties {
		assert.Equal(t, present[name] == seeds, slices.Contains(def.Required, name), name)
	}
}
