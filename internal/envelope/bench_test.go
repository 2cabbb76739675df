package envelope_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/penstock-go/penstock/internal/envelope"
)

// BenchmarkRefuse is what it takes to refuse a message: its type and its
// correlation id, for every size and order.
func BenchmarkRefuse(b *testing.B) {
	all := frames()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		frame := all[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				head, err := envelope.ParseHead(frame)
				if err != nil {
					b.Fatal(err)
				}
				head.FindCorrelationID(frame)
			}
		})
	}
}

// BenchmarkParse compares the whole check with encoding/json's.
func BenchmarkParse(b *testing.B) {
	for _, size := range []string{"200B", "16kB of items", "16kB of text"} {
		frame := frames()[size+"/type,meta,payload"]
		b.Run(size+"/Parse", func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			for b.Loop() {
				if _, err := envelope.Parse(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(size+"/json.Valid", func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			for b.Loop() {
				if !json.Valid(frame) {
					b.Fatal()
				}
			}
		})
	}
}
