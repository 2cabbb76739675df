package jsoncode_test

import (
	"fmt"
	"testing"

	"github.com/penstock-go/penstock/codec/jsoncode/internal/kinds"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// says returns messages of 80 bytes with different texts: the library remembers recent strings.
func says() (values []kinds.Say, texts [][]byte) {
	for i := range 4096 {
		v := kinds.Say{Room: "general", Text: fmt.Sprintf("The quick brown fox jumps over %4d dogs", i), N: 1_000_000 + i}
		text, err := v.AppendJSON(nil)
		if err != nil || len(text) != 80 {
			panic(fmt.Sprint(len(text), err))
		}
		values, texts = append(values, v), append(texts, text)
	}
	return values, texts
}

// decoded keeps the message on the heap, where the router has it.
var decoded *kinds.Say

// BenchmarkDecode compares the library with generated code.
func BenchmarkDecode(b *testing.B) {
	_, texts := says()
	b.Run("library", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			decoded = new(kinds.Say)
			if err := jsonv2.Unmarshal(texts[i%len(texts)], decoded, decodeOptions); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			decoded = new(kinds.Say)
			if err := decoded.DecodeJSON(texts[i%len(texts)]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAppend compares the library with generated code.
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
	b.Run("generated", func(b *testing.B) {
		var text []byte
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			var err error
			if text, err = values[i%len(values)].AppendJSON(text[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

type buffer struct{ b []byte }

func (w *buffer) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}
