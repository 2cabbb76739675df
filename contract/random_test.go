package contract_test

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"time"
)

// A generator fills values at random. The same seed gives the same values.
type generator struct{ *rand.Rand }

// fill sets v and everything that it contains. Below depth 0, lists and maps are empty and pointers nil.
func (g generator) fill(v reflect.Value, safe bool, depth int) {
	switch target := v.Addr().Interface().(type) {
	case *time.Time:
		if g.IntN(4) > 0 {
			*target = time.Unix(g.Int64N(1e10), g.Int64N(1e9)).In(time.FixedZone("", 60*(g.IntN(1200)-600)))
		}
		return
	case *big.Int:
		target.Lsh(big.NewInt(g.Int64N(1e9)-5e8), uint(g.IntN(100)))
		return
	case *netip.Addr:
		*target = netip.AddrFrom4([4]byte{byte(g.Uint32()), 1, 2, 3})
		return
	case *Code:
		*target = Code{byte(g.IntN(26)), byte(g.IntN(26))}
		return
	case *json.RawMessage:
		*target, _ = json.Marshal(g.value())
		return
	case *any:
		*target = g.value()
		return
	case *Shape:
		*target = []Shape{nil, Circle{"circle", g.Float64()}, Square{"square", 2}}[g.IntN(3)]
		return
	}
	if method := v.MethodByName("Enum"); method.IsValid() && v.Kind() != reflect.Pointer {
		values := method.Call(nil)[0]
		v.Set(values.Index(g.IntN(values.Len())).Convert(v.Type()))
		return
	}
	g.fillKind(v, safe, depth)
}

func (g generator) fillKind(v reflect.Value, safe bool, depth int) {
	n := 0
	if depth > 0 {
		n = g.IntN(3)
	}
	const maxSafe = 1<<53 - 1
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(g.IntN(2) == 0)
	case reflect.String:
		v.SetString([]string{"", "a", "ü\u2028", "\xff", "\"<\\", "null"}[g.IntN(6)])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i := []int64{0, 1, -1, 1<<63 - 1, -1 << 63, 1<<53 - 1, int64(g.Uint64())}[g.IntN(7)]
		if safe {
			i = min(maxSafe, max(-maxSafe, i))
		}
		v.SetInt(i) // cuts what does not fit
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		u := []uint64{0, 1, 1<<64 - 1, g.Uint64()}[g.IntN(4)]
		if safe {
			u = min(maxSafe, u)
		}
		v.SetUint(u)
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0, -0.5, 1e30, 1e-30, g.NormFloat64()}[g.IntN(5)])
	case reflect.Pointer:
		if n > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			g.fill(v.Elem(), safe, depth-1)
		}
	case reflect.Slice:
		if g.IntN(3) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		g.fillElements(v, safe, depth)
	case reflect.Array:
		g.fillElements(v, safe, depth)
	case reflect.Map:
		if n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
		}
		for range n {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			g.fill(key, false, depth-1)
			if key.Kind() == reflect.String && key.String() == "\xff" {
				continue // replaced by U+FFFD, which may be another key
			}
			g.fill(value, safe, depth-1)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				g.fill(v.Field(i), f.Tag.Get("contract") == "safe", depth-1)
			}
		}
	}
}

func (g generator) fillElements(v reflect.Value, safe bool, depth int) {
	for i := range v.Len() {
		g.fill(v.Index(i), safe, depth-1)
	}
}

func (g generator) value() any {
	return []any{nil, true, 1.5, "text", []any{1.0, "a"}, map[string]any{"a": nil}}[g.IntN(6)]
}
