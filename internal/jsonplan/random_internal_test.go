package jsonplan

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// types returns types with every kind of field.
func types() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[Say](), reflect.TypeFor[Scalars](), reflect.TypeFor[Named](), reflect.TypeFor[Lists](),
		reflect.TypeFor[Pointers](), reflect.TypeFor[Omitted](), reflect.TypeFor[FirstCertain](), reflect.TypeFor[Quoted](),
		reflect.TypeFor[Embedded](), reflect.TypeFor[Library](), reflect.TypeFor[Tree](), reflect.TypeFor[OddNames](),
		reflect.TypeFor[Many](), reflect.TypeFor[Empty](), reflect.TypeFor[ByPointer](), reflect.TypeFor[Conflicts](),
	}
}

// typeNumber returns one of the types for any number.
func typeNumber(n uint8) reflect.Type {
	all := types()
	return all[int(n)%len(all)]
}

// A filler fills values at random. The same seed gives the same values.
type filler struct {
	*rand.Rand

	plain bool // only values that are not left to the library
}

func newFiller(seed uint64, plain bool) filler {
	return filler{rand.New(rand.NewPCG(seed, 1)), plain}
}

// value returns a pointer to a new random value of a type.
func (g filler) value(t reflect.Type) reflect.Value {
	v := reflect.New(t)
	g.fill(v.Elem(), 4)
	return v
}

// fill sets v and everything that it contains. Below depth 0, lists and maps are empty and pointers nil.
func (g filler) fill(v reflect.Value, depth int) {
	if !v.CanSet() && v.Kind() != reflect.Struct {
		return
	}
	if v.CanInterface() && v.CanAddr() && g.fillSpecial(v.Addr().Interface()) {
		return
	}
	n := 0
	if depth > 0 {
		n = g.IntN(4)
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(g.IntN(2) == 0)
	case reflect.String:
		v.SetString(g.text())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 7, math.MaxInt64, math.MinInt64, int64(g.Uint64())}[g.IntN(7)]) // cuts what does not fit
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint([]uint64{0, 1, math.MaxUint64, 1e19, g.Uint64()}[g.IntN(5)])
	case reflect.Float32, reflect.Float64:
		v.SetFloat(g.float())
	case reflect.Pointer:
		if n > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			g.fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if n > 0 || g.IntN(2) == 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		g.fillElements(v, depth)
	case reflect.Array:
		g.fillElements(v, depth)
	case reflect.Map:
		if n > 0 || g.IntN(2) == 0 {
			v.Set(reflect.MakeMap(v.Type()))
		}
		for range 3 * n {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			g.fill(key, depth-1)
			g.fill(elem, depth-1)
			v.SetMapIndex(key, elem)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				g.fill(v.Field(i), depth-1)
			}
		}
	}
}

func (g filler) fillElements(v reflect.Value, depth int) {
	for i := range v.Len() {
		g.fill(v.Index(i), depth-1)
	}
}

// fillSpecial sets values of types with methods or without a form of their own.
func (g filler) fillSpecial(v any) bool {
	switch v := v.(type) {
	case *time.Time:
		switch g.IntN(4) {
		case 0:
			*v = time.Time{}
		case 1:
			*v = time.Unix(g.Int64N(1e10), g.Int64N(1e9)).UTC()
		case 2:
			*v = time.Unix(g.Int64N(1e10), g.Int64N(10)*1e8).In(time.FixedZone("", 60*(g.IntN(2800)-1400)))
		default:
			if *v = time.Unix(g.Int64N(1e10), 0).UTC(); !g.plain {
				*v = time.Unix(g.Int64N(1e12), 0).In(time.FixedZone("", g.IntN(1e6)-5e5))
			}
		}
	case *json.RawMessage:
		*v, _ = json.Marshal(g.any(2))
	case *JSON:
		text, _ := json.Marshal(g.any(2))
		if g.IntN(2) == 0 {
			_ = v.UnmarshalJSON(text)
		}
	case *any:
		*v = g.any(3)
	case *netip.Addr:
		*v = netip.AddrFrom4([4]byte{byte(g.Uint32()), 1, 2, 3})
	case *Text:
		_ = v.UnmarshalText([]byte{'a' + byte(g.IntN(26)), 'b'})
	default:
		return false
	}
	return true
}

// text returns a string, which may contain what must be escaped.
func (g filler) text() string {
	parts := []string{"", "a", "room", "The quick brown fox", "ü", "日本語", "😀", "\"", "\\", "\n", "\x00", "\x1f", "\x7f", "<&>", "\u2028", "\ufffd", "/", "null", "{}", "[]", `""`}
	if !g.plain {
		parts = append(parts, "\xff", "\xc3", "\xed\xa0\x80")
	}
	var b strings.Builder
	for range g.IntN(4) {
		b.WriteString(parts[g.IntN(len(parts))])
	}
	return b.String()
}

func (g filler) float() float64 {
	all := []float64{0, math.Copysign(0, -1), 1, -0.5, 1e20, 1e21, 1e-6, 1e-7, 3e38, g.NormFloat64(), math.Float64frombits(g.Uint64() &^ (1 << 62))}
	if !g.plain {
		all = append(all, math.NaN(), math.Inf(1), math.Inf(-1), 1e300)
	}
	f := all[g.IntN(len(all))]
	if g.plain && math.Abs(f) > math.MaxFloat32 {
		return 1
	}
	return f
}

// any returns any JSON value.
func (g filler) any(depth int) any {
	if depth == 0 {
		return nil
	}
	return []any{nil, true, g.NormFloat64(), g.text(), []any{g.any(depth - 1), "]"}, map[string]any{g.text(): g.any(depth - 1), "b": "}"}, map[string]any{}}[g.IntN(7)]
}

// spaced returns a JSON text with random space between its tokens.
func (g filler) spaced(text []byte) []byte {
	var out []byte
	quoted := false
	for i, c := range text {
		if c == '"' && !isEscaped(text, i) {
			quoted = !quoted
		}
		delimiter := !quoted && strings.IndexByte(`{}[],:`, c) >= 0
		if delimiter && g.IntN(3) == 0 {
			out = append(out, " \n"[g.IntN(2)])
		}
		out = append(out, c)
		if delimiter && g.IntN(3) == 0 {
			out = append(out, "\t\r"[g.IntN(2)])
		}
	}
	return out
}

func isEscaped(text []byte, i int) bool {
	n := 0
	for i--; i >= 0 && text[i] == '\\'; i-- {
		n++
	}
	return n%2 == 1
}

// mutated returns a text with a few random changes, which are likely to be interesting to a decoder.
func (g filler) mutated(text []byte) []byte {
	parts := []string{
		"null", "true", "0", "-1", "1e5", "1.5", "300", "70000", "5000000000", "18446744073709551615", `""`, `"a"`, `"\u0041"`, `"\ud800"`, `"\n"`, "{}", "[]", ",", ":", `"`, `\`, "[", "]", "{", "}", " ",
		`"A":1,`, `"x":null,`, "\xff", "\x01", "é",
	}
	out := append([]byte(nil), text...)
	for range 1 + g.IntN(3) {
		from := g.IntN(len(out) + 1)
		to := min(len(out), from+g.IntN(6))
		switch g.IntN(4) {
		case 0: // delete
			out = append(out[:from:from], out[to:]...)
		case 1: // insert
			out = append(out[:from:from], append([]byte(parts[g.IntN(len(parts))]), out[from:]...)...)
		case 2: // replace
			out = append(out[:from:from], append([]byte(parts[g.IntN(len(parts))]), out[to:]...)...)
		case 3: // replace a value
			out = g.otherValue(out, parts[g.IntN(14)])
		}
	}
	return out
}

// otherValue replaces what is between a colon or comma and the next delimiter.
func (g filler) otherValue(text []byte, by string) []byte {
	var starts []int
	for i, c := range text {
		if c == ':' || c == ',' || c == '[' {
			starts = append(starts, i+1)
		}
	}
	if len(starts) == 0 {
		return text
	}
	from := starts[g.IntN(len(starts))]
	to := from
	for to < len(text) && strings.IndexByte(",}]", text[to]) < 0 {
		to++
	}
	return append(text[:from:from], append([]byte(by), text[to:]...)...)
}
