package jsonplan

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// benchmarks returns values of types for which plans must not be slower than the library.
func benchmarks() map[string][]any {
	all := map[string][]any{}
	for i := range 256 { // with different texts: both remember recent strings
		text := fmt.Sprintf("The quick brown fox jumps over %4d dogs", i)
		all["message of 80 bytes"] = append(all["message of 80 bytes"], &Say{"general", text, 1_000_000 + i})
		all["optional members"] = append(all["optional members"], &Omitted{String: text, Slice: []int{i}, Text: &text, Time: time.Unix(int64(i), 0).UTC()})
		all["embedded members"] = append(all["embedded members"], &Embedded{Base: Base{"id", text}, Deep: &Deep{Depth: i}})
	}
	all["string of 10 KB"] = []any{&Say{Text: strings.Repeat("The quick brown fox ", 500)}}
	all["escaped string of 10 KB"] = []any{&Say{Text: strings.Repeat("\"The quick\"\nbröwn fox ", 450)}}
	all["10 KB in base64"] = []any{&Scalars{Bytes: make([]byte, 7500)}}
	points, floats, strs := &Lists{}, &Lists{}, &Lists{Map: map[string]int{}}
	for i := range 1000 {
		points.Points = append(points.Points, Point{i, -i})
		floats.Ints = append(floats.Ints, i)
		strs.Strings = append(strs.Strings, fmt.Sprint("string ", i))
		strs.Map[fmt.Sprint("string ", i)] = i
	}
	all["1,000 structs"], all["1,000 integers"], all["1,000 strings and members"] = []any{points}, []any{floats}, []any{strs}
	for range 50 {
		floats.Matrix = append(floats.Matrix, []float64{1.5, 2.25e10, -3, 4, 5.125, 0.1})
	}
	all["scalars"] = []any{&Scalars{String: "a", Bytes: []byte("bytes"), Time: time.Unix(1e9, 0).UTC(), Float64: 1.5}}
	all["strings by name"] = []any{&struct{ M map[string]string }{map[string]string{"a": "b", "c": "d", "e": "f"}}}
	all["one of three by the library"] = []any{&struct {
		A    string
		Addr netip.Addr
		B    int
	}{"a", netip.MustParseAddr("10.0.0.1"), 1}}
	all["any among four"] = []any{&struct {
		A, B, C string
		Data    any
	}{"a", "b", "c", map[string]any{"a": "b", "list": []any{1.0, 2.0, 3.0, "four"}, "object": map[string]any{"x": 1.0, "y": strings.Repeat("x", 100)}}}}
	all["list with any"] = []any{&struct{ List []withAny }{make([]withAny, 100)}}
	all["67 members"] = []any{&Many{F01: 1, F65: "a"}}
	all["tree"] = []any{&Tree{Left: &Tree{Left: &Tree{Value: 3}}, Children: make([]Tree, 20)}}
	return all
}

type withAny struct {
	A, B, C string
	Data    any
}

func BenchmarkDecode(b *testing.B) {
	for name, values := range benchmarks() {
		typ := reflect.TypeOf(values[0]).Elem()
		p, place := Of(typ), reflect.New(typ)
		var texts [][]byte
		for _, v := range values {
			text, err := libraryAppend(nil, v)
			if err != nil {
				b.Fatal(err)
			}
			texts = append(texts, text)
		}
		run := func(decode func(text []byte, v any, strict bool) error) func(b *testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					place.Elem().SetZero()
					if err := decode(texts[i%len(texts)], place.Interface(), false); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		b.Run(name+"/library", run(libraryUnmarshal))
		b.Run(name+"/plan", run(p.Unmarshal))
	}
}

func BenchmarkAppend(b *testing.B) {
	for name, values := range benchmarks() {
		p := Of(reflect.TypeOf(values[0]).Elem())
		run := func(add func(b []byte, v any) ([]byte, error)) func(b *testing.B) {
			return func(b *testing.B) {
				var text []byte
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					var err error
					if text, err = add(text[:0], values[i%len(values)]); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		b.Run(name+"/library", run(libraryAppend))
		b.Run(name+"/plan", run(p.Append))
	}
}
