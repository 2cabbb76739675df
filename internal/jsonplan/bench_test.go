package jsonplan_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

var sayPlan = jsonplan.Of(reflect.TypeFor[Say]())

// says returns messages of 80 bytes with different texts: the library remembers recent strings.
func says() (values []Say, texts [][]byte) {
	for i := range 4096 {
		v := Say{Room: "general", Text: fmt.Sprintf("The quick brown fox jumps over %4d dogs", i), N: 1_000_000 + i}
		text, ok := sayPlan.AppendPointer(nil, &v)
		if !ok || len(text) != 80 {
			panic(len(text))
		}
		values, texts = append(values, v), append(texts, text)
	}
	return values, texts
}

// decoded keeps the message on the heap, where the router has it.
var decoded *Say

// BenchmarkDecode compares the library with a plan.
func BenchmarkDecode(b *testing.B) {
	_, texts := says()
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			decoded = new(Say)
			if err := jsonv2.Unmarshal(texts[i%len(texts)], decoded, decodeOptions); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plan", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			decoded = new(Say)
			if !sayPlan.Decode(texts[i%len(texts)], decoded) {
				b.Fatal(string(texts[i%len(texts)]))
			}
		}
	})
}

// BenchmarkAppend compares the library with a plan.
func BenchmarkAppend(b *testing.B) {
	values, _ := says()
	b.Run("library", func(b *testing.B) {
		w := &buffer{}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			w.b = w.b[:0]
			if err := jsonv2.MarshalWrite(w, &values[i%len(values)], encodeOptions); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plan", func(b *testing.B) {
		var text []byte
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			var ok bool
			if text, ok = sayPlan.AppendPointer(text[:0], &values[i%len(values)]); !ok {
				b.Fatal(values[i%len(values)])
			}
		}
	})
}

type buffer struct{ b []byte }

func (w *buffer) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}
