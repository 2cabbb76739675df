package internal_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/penstock-go/penstock/internal/wire"
)

// BenchmarkParseHead measures the cost of a rejected message: reading the type and the correlation
// ID, for several sizes and every order of the members.
func BenchmarkParseHead(b *testing.B) {
	all := frames()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		frame := all[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				head, err := wire.ParseHead(frame)
				if err != nil {
					b.Fatal(err)
				}
				head.FindMeta(frame)
			}
		})
	}
}

// BenchmarkParse compares Parse with json.Valid.
func BenchmarkParse(b *testing.B) {
	for _, size := range []string{"200B", "16kB of items", "16kB of text"} {
		frame := frames()[size+"/type,meta,payload"]
		b.Run(size+"/Parse", func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			for b.Loop() {
				if _, err := wire.Parse(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(size+"/ParseHead and Parse", func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			for b.Loop() {
				head, err := wire.ParseHead(frame)
				if err != nil {
					b.Fatal(err)
				}
				if _, err = head.Parse(frame); err != nil {
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
