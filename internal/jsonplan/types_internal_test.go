package jsonplan

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/testscale"
)

// A typeMaker makes types at random. The same seed makes the same types.
type typeMaker struct{ *rand.Rand }

// structOf returns a struct type, in which structs are nested up to a depth.
func (g typeMaker) structOf(depth int) reflect.Type {
	fields := make([]reflect.StructField, g.IntN(6))
	for i := range fields {
		f := &fields[i]
		f.Name = "F" + strconv.Itoa(i)
		f.Type = g.typeOf(depth)
		f.Tag = g.tag(i)
	}
	return reflect.StructOf(fields)
}

// tag returns the tag of a field. Some tags are rejected by the library for most types.
func (g typeMaker) tag(i int) reflect.StructTag {
	options := []string{"", "", "", ",omitzero", ",omitempty", ",omitzero,omitempty", ",case:strict"}
	if g.IntN(8) == 0 {
		options = []string{",string", ",embed", ",omitzero,omitzero", ",case:ignore", ",format:hex", ",other", ","}
	}
	option := options[g.IntN(len(options))]
	names := []string{"", "f" + strconv.Itoa(i), "f" + strconv.Itoa(i), "-", "'", "ü", "a b", "F0", "f1"}
	name := names[min(g.IntN(len(names)), g.IntN(len(names)))]
	return reflect.StructTag("json:" + strconv.Quote(name+option))
}

func (g typeMaker) typeOf(depth int) reflect.Type {
	simple := []reflect.Type{
		reflect.TypeFor[bool](), reflect.TypeFor[string](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int16](), reflect.TypeFor[int32](),
		reflect.TypeFor[uint](), reflect.TypeFor[uint8](), reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[float32](), reflect.TypeFor[float64](),
		reflect.TypeFor[[]byte](), reflect.TypeFor[[5]byte](), reflect.TypeFor[[0]byte](), reflect.TypeFor[time.Time](), reflect.TypeFor[Room](), reflect.TypeFor[Octet](),
		reflect.TypeFor[struct{}](), reflect.TypeFor[Zeroer](), reflect.TypeFor[Tree](), reflect.TypeFor[Embedded](), reflect.TypeFor[List](), reflect.TypeFor[Omitted](),
		reflect.TypeFor[any](), reflect.TypeFor[json.RawMessage](), reflect.TypeFor[netip.Addr](), reflect.TypeFor[Text](), reflect.TypeFor[JSON](), reflect.TypeFor[map[int]string](),
	}
	if depth == 0 || g.IntN(3) == 0 {
		return simple[g.IntN(len(simple))]
	}
	switch elem := g.typeOf(depth - 1); g.IntN(5) {
	case 0:
		return reflect.PointerTo(elem)
	case 1:
		return reflect.SliceOf(elem)
	case 2:
		return reflect.ArrayOf(g.IntN(3), elem)
	case 3:
		return reflect.MapOf([]reflect.Type{reflect.TypeFor[string](), reflect.TypeFor[Room](), reflect.TypeFor[Text]()}[g.IntN(3)], elem)
	default:
		return g.structOf(depth - 1)
	}
}

// checkRandomType checks random values of a random type.
func checkRandomType(t *testing.T, seed uint64) {
	t.Helper()
	typ := typeMaker{rand.New(rand.NewPCG(seed, 2))}.structOf(3)
	for _, plain := range []bool{true, false} {
		g := newFiller(seed, plain)
		v := g.value(typ)
		checkAppend(t, v)
		text, err := Of(typ).Append(nil, v.Interface())
		if err != nil {
			text = []byte(`{"f0":1,"F1":"a"}`)
		}
		checkDecode(t, typ, text)
		checkDecode(t, typ, g.spaced(text))
		for range 4 {
			checkDecode(t, typ, g.mutated(text))
		}
	}
}

func TestPlan_AgreesWithTheLibraryForRandomTypes(t *testing.T) {
	for range testscale.Pick(300, 3000) {
		seed := rand.Uint64()
		if !t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { checkRandomType(t, seed) }) {
			return
		}
	}
}

// FuzzTypes checks random types.
func FuzzTypes(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(checkRandomType)
}
