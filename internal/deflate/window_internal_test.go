package deflate

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flushTail ends a flush and is not transmitted.
const flushTail = "\x00\x00\xff\xff"

func TestWindows_MemoryIsWhatIsCounted(t *testing.T) {
	w := Windows{sends: true, receives: true}
	assert.Nil(t, w.ToSend().table)
	assert.Nil(t, w.ToReceive().Text())
	for range 100 {
		message := bytes.Repeat([]byte("message "), 100)
		w.ToSend().Deflate(nil, message)
		w.ToSend().Add(bytes.Repeat(message, 10))
		w.ToReceive().Add(message)
		w.ToReceive().Add(bytes.Repeat(message, 10))
	}
	assert.Equal(t, MemoryBytes, cap(w.sent.text)+cap(w.received.text)+int(unsafe.Sizeof(*w.sent.table)))
}

// TestWindow_DistancesOfAllLengths compresses repetitions at all distances and of all lengths.
func TestWindow_DistancesOfAllLengths(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	noise := make([]byte, WindowBytes)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for distance := hashedBytes; distance < WindowBytes-2*maxMatch; distance += 1 + distance/64 {
		for _, n := range []int{4, 5, 10, 11, 12, 17, 34, 35, 114, 115, 130, 131, 256, 257, 258, 259, 500} {
			n := min(n, distance)
			message := append(bytes.Clone(noise[:distance]), noise[:n]...)
			var w SendWindow
			got, err := io.ReadAll(flate.NewReader(strings.NewReader(string(w.Deflate(nil, message)) + flushTail + "\x01\x00\x00\xff\xff")))
			require.NoError(t, err)
			require.Equal(t, message, got)
		}
	}
}

// TestWindow_ShortensSmallMessages compares what a window of 2 KiB saves with a compressor of the library that keeps 32 KiB.
func TestWindow_ShortensSmallMessages(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	var w SendWindow
	var out bytes.Buffer
	library, err := flate.NewWriter(&out, flate.BestSpeed)
	require.NoError(t, err)
	before, after := 0, 0
	for n := range 1000 {
		message := fmt.Appendf(nil, `{"type":"SAID","meta":{"timestamp":%d},"payload":{"room":"general","user":%d,"text":"message %x"}}`, n, random.IntN(50), random.Uint32())
		_, _ = library.Write(message)
		_ = library.Flush()
		before, after = before+len(message), after+len(w.Deflate(nil, message))
	}
	assert.Less(t, float64(after)/float64(before), 0.3)
	assert.Less(t, float64(after), 1.1*float64(out.Len()-1000*len(flushTail)))
}

func BenchmarkWindow(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // the same in each run
	var messages [64][]byte
	for i := range messages {
		messages[i] = fmt.Appendf(nil, `{"type":"SAY","meta":{"timestamp":1730000000000,"correlationId":"b7c1-%06d"},"payload":{"room":"general","text":"%06d brown foxes jump over a lazy dog, and the dog does not look up.","n":%d}}`, i, i, random.Uint32())
	}
	var w SendWindow
	var out []byte
	b.Run("deflate", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			out = w.Deflate(out[:0], messages[n%len(messages)])
		}
	})
	b.Run("add", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			w.Add(messages[n%len(messages)])
		}
	})
}
