package jsonplan_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/testscale"
)

// typ returns a random type, also one that the library rejects.
func (g filler) typ(depth int) reflect.Type {
	simple := []reflect.Type{
		reflect.TypeFor[bool](), reflect.TypeFor[string](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[uint16](), reflect.TypeFor[int64](), reflect.TypeFor[float32](),
		reflect.TypeFor[float64](), reflect.TypeFor[[]byte](), reflect.TypeFor[[3]byte](), reflect.TypeFor[time.Time](), reflect.TypeFor[Flag](), reflect.TypeFor[Room](), reflect.TypeFor[Count](),
		reflect.TypeFor[Octet](), reflect.TypeFor[Point](), reflect.TypeFor[Zeroer](), reflect.TypeFor[Text](), reflect.TypeFor[JSON](), reflect.TypeFor[any](), reflect.TypeFor[json.RawMessage](),
		reflect.TypeFor[netip.Addr](), reflect.TypeFor[Tree](), reflect.TypeFor[Fallback](), reflect.TypeFor[List](), reflect.TypeFor[Empty](), reflect.TypeFor[OmittedInner](), reflect.TypeFor[Embedded](),
	}
	if depth == 0 {
		return simple[g.IntN(len(simple))]
	}
	switch g.IntN(8) {
	case 0:
		return reflect.PointerTo(g.typ(depth - 1))
	case 1:
		return reflect.SliceOf(g.typ(depth - 1))
	case 2:
		return reflect.ArrayOf(g.IntN(3), g.typ(depth-1))
	case 3:
		return reflect.MapOf([]reflect.Type{reflect.TypeFor[string](), reflect.TypeFor[Room](), reflect.TypeFor[int]()}[g.IntN(3)], g.typ(depth-1))
	case 4, 5, 6:
		return g.structType(depth - 1)
	default:
		return simple[g.IntN(len(simple))]
	}
}

// structType returns a random struct type, with fields of any size in any order.
func (g filler) structType(depth int) reflect.Type {
	var fields []reflect.StructField
	for i := range g.IntN(14) {
		name := []string{fmt.Sprint("f", i), "a", "b", ""}[min(g.IntN(12), 3)]
		if g.IntN(10) < 7 {
			name = fmt.Sprint("f", i)
		}
		tag := name
		for _, option := range []string{"omitzero", "omitempty", "string", "case:strict", "embed", "format:hex"} {
			if g.IntN(8) == 0 {
				tag += "," + option
			}
		}
		if g.IntN(30) == 0 {
			tag = "-"
		}
		f := reflect.StructField{Name: fmt.Sprint("F", i), Type: g.typ(depth)}
		if tag != "" {
			f.Tag = reflect.StructTag(fmt.Sprintf("json:%q", tag))
		}
		fields = append(fields, f)
	}
	return reflect.StructOf(fields)
}

// checkType checks random values of a random type.
func checkType(t *testing.T, seed uint64) {
	g := newFiller(seed, seed%2 == 0)
	typ := g.structType(2)
	plan := jsonplan.Of(typ)
	if plan == nil {
		return
	}
	for range 4 {
		v := reflect.New(typ)
		g.fill(v.Elem(), 4)
		checkAppend(t, v.Interface())
		text, err := jsonv2.Marshal(v.Interface(), encodeOptions)
		if err != nil {
			continue
		}
		for _, text := range [][]byte{text, g.spaced(text), g.mutated(text), g.mutated(text), []byte(strings.ToUpper(string(text)))} {
			checkDecode(t, typ, text)
		}
	}
}

func TestPlan_AgreesWithTheLibraryForAnyType(t *testing.T) {
	for range testscale.Pick(300, 5000) {
		seed := rand.Uint64()
		require.True(t, t.Run(fmt.Sprint(seed), func(t *testing.T) { checkType(t, seed) }))
	}
}

// FuzzType has a plan for any type.
func FuzzType(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(checkType)
}
