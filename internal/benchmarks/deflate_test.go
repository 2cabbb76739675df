package main

import (
	"bufio"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	klauspost "github.com/klauspost/compress/flate"
)

// messages are what the benchmarks compress: each function returns its nth message.
var messages = []struct {
	name string
	nth  func(n int) []byte
}{
	{"small", func(n int) []byte { return []byte(say(n)) }},
	{"chat 1 KiB", func(n int) []byte { return savePayload(n)[:1024] }},
	{"large", func(n int) []byte { return []byte(save(n)) }},
	{"repetitive 16 KiB", func(n int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%06d, again and ", n), 1024)) }},
	{"random 16 KiB", func(n int) []byte {
		random := rand.New(rand.NewPCG(uint64(n), 0)) //nolint:gosec // every run compresses the same bytes
		message := make([]byte, 16<<10)
		for i := range message {
			message[i] = byte(random.Uint32())
		}
		return message
	}},
}

var libraries = []struct {
	name      string
	newWriter func() (deflater, error)
	newReader func(io.Reader) io.ReadCloser
}{
	{"standard", func() (deflater, error) { return flate.NewWriter(nil, flate.BestSpeed) }, flate.NewReader},
	{"klauspost", func() (deflater, error) { return klauspost.NewWriter(nil, klauspost.BestSpeed) }, klauspost.NewReader},
}

// sample returns 64 messages, so that a compressor does not always meet the same one.
func sample(nth func(n int) []byte) [][]byte {
	var all [][]byte
	for n := range 64 {
		all = append(all, nth(n))
	}
	return all
}

// BenchmarkDeflate compares libraries that compress a message without a window of earlier ones.
// "ratio" is the length of the result, relative to that of the message.
func BenchmarkDeflate(b *testing.B) {
	var out bytes.Buffer
	for _, m := range messages {
		inputs := sample(m.nth)
		run := func(name string, compress func(message []byte)) {
			b.Run(m.name+"/"+name, func(b *testing.B) {
				n, before, after := 0, 0, 0
				for b.Loop() {
					message := inputs[n%len(inputs)]
					n++
					out.Reset()
					compress(message)
					before, after = before+len(message), after+out.Len()-len(flushTail)
				}
				b.ReportMetric(float64(after)/float64(before), "ratio")
			})
		}
		for _, lib := range libraries {
			w, err := lib.newWriter()
			check(err)
			run(lib.name, func(message []byte) {
				w.Reset(&out)
				_, err := w.Write(message)
				check(err)
				check(w.Flush())
			})
		}
		run("klauspost, stateless", func(message []byte) {
			check(klauspost.StatelessDeflate(&out, message, false, nil))
		})
		dictionary := inputs[0][:min(len(inputs[0]), 8<<10)]
		run("klauspost, stateless with a dictionary", func(message []byte) {
			check(klauspost.StatelessDeflate(&out, message, false, dictionary))
		})
	}
}

// BenchmarkInflate compares libraries that decompress a message.
func BenchmarkInflate(b *testing.B) {
	for _, m := range messages {
		var inputs [][]byte
		for _, message := range sample(m.nth) {
			inputs = append(inputs, []byte(deflated(string(message), 32<<10)+flushTail+"\x01\x00\x00\xff\xff"))
		}
		for _, lib := range libraries {
			b.Run(m.name+"/"+lib.name, func(b *testing.B) {
				message := bytes.NewReader(nil)
				source := bufio.NewReader(message) // as Penstock's
				r := lib.newReader(source)
				buffer := make([]byte, 32<<10)
				n := 0
				for b.Loop() {
					message.Reset(inputs[n%len(inputs)])
					source.Reset(message)
					n++
					check(r.(flate.Resetter).Reset(source, nil))
					for {
						if _, err := r.Read(buffer); err == io.EOF {
							break
						} else if err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

// BenchmarkDeflateMemory measures what a compressor and a decompressor take, as bytes per operation.
func BenchmarkDeflateMemory(b *testing.B) {
	message := []byte(save(0))
	compressed := []byte(deflated(string(message), 32<<10))
	for _, lib := range libraries {
		b.Run("compressor/"+lib.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w, err := lib.newWriter()
				check(err)
				w.Reset(io.Discard)
				_, err = w.Write(message)
				check(err)
				check(w.Flush())
			}
		})
		b.Run("decompressor/"+lib.name, func(b *testing.B) {
			b.ReportAllocs()
			buffer := make([]byte, 32<<10)
			for b.Loop() {
				_, err := io.ReadFull(lib.newReader(bytes.NewReader(compressed)), buffer[:len(message)])
				check(err)
			}
		})
	}
}

// BenchmarkDeflateWindow compares ways to refer to the last bytes of earlier messages, as a compressor of its own for each
// connection does with 32 KiB.
func BenchmarkDeflateWindow(b *testing.B) {
	var out bytes.Buffer
	for _, m := range messages[:2] {
		inputs := sample(m.nth)
		run := func(name string, window int, compress func(message, window []byte)) {
			b.Run(m.name+"/"+name, func(b *testing.B) {
				var text []byte
				n, before, after := 0, 0, 0
				for b.Loop() {
					message := inputs[n%len(inputs)]
					n++
					out.Reset()
					compress(message, text[max(0, len(text)-window):])
					before, after = before+len(message), after+out.Len()-len(flushTail)
					if len(text) > 64<<10 {
						text = append(text[:0], text[len(text)-window:]...)
					}
					text = append(text, message...)
				}
				b.ReportMetric(float64(after)/float64(before), "ratio")
			})
		}
		w, err := klauspost.NewWriter(&out, klauspost.BestSpeed)
		check(err)
		run("own compressor", 0, func(message, _ []byte) {
			_, err := w.Write(message)
			check(err)
			check(w.Flush())
		})
		for _, window := range []int{1 << 10, 2 << 10, 4 << 10, 8 << 10, 32 << 10} {
			w, err := klauspost.NewWriter(nil, klauspost.BestSpeed)
			check(err)
			run(fmt.Sprintf("dictionary of %d", window), window, func(message, window []byte) {
				w.ResetDict(&out, window)
				_, err := w.Write(message)
				check(err)
				check(w.Flush())
			})
			if window <= 8<<10 {
				run(fmt.Sprintf("stateless with %d", window), window, func(message, window []byte) {
					check(klauspost.StatelessDeflate(&out, message, false, window))
				})
			}
		}
	}
}
