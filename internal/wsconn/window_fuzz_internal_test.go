package wsconn

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	klauspost "github.com/klauspost/compress/flate"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/deflate"
)

// windowMessage returns a message of at most 200 bytes or, seldom, of some kilobytes: of JSON, in another alphabet,
// or of random bytes.
func windowMessage(random *rand.Rand) []byte {
	n := random.IntN([]int{200, 200, 200, 2 * deflate.WindowBytes, 10 * deflate.WindowBytes}[random.IntN(5)])
	var b []byte
	for len(b) < n {
		switch kind := random.IntN(8); kind {
		case 0:
			b = append(b, byte(random.Uint32()))
		case 1:
			b = append(b, []string{"привет, ", "как дела? ", "завтра "}[random.IntN(3)]...)
		default:
			b = fmt.Appendf(b, `{"type":"SAID","payload":{"room":"general","user":%d,"text":"%x"}}`, random.IntN(50), random.IntN(1<<random.IntN(30)))
		}
	}
	return b[:n]
}

// FuzzWindow_SentMessagesAreOneStream compresses random messages for one connection, some of which are for others
// too, and decompresses them as one stream with the standard library.
func FuzzWindow_SentMessagesAreOneStream(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed, 0)
		f.Add(seed, 150)
	}
	f.Fuzz(func(t *testing.T, seed uint64, minBytes int) {
		random := rand.New(rand.NewPCG(seed, 0))
		d := NewDeflater(minBytes, 0)
		var w deflate.SendWindow
		var stream bytes.Buffer
		var text []byte
		r := flate.NewReader(&stream)
		for n := range 200 {
			message := windowMessage(random)
			frame := NewFrame()
			_, _ = frame.Write(message)
			frame.Seal()
			if random.IntN(5) == 0 {
				frame.buf[frame.start] = finPing
			}
			if random.IntN(4) == 0 {
				frame.Retain() // for another connection
			}
			full := len(w.Text()) >= deflate.WindowBytes
			sent := d.bytes(frame, &w)
			header := len(frame.buf) - maxHeaderBytes
			if sent[0]&rsv1 == 0 {
				require.Equal(t, frame.bytes(), sent, "message %d of %d bytes", n, header)
				continue
			}
			if full {
				require.Less(t, len(sent), len(frame.bytes()))
			}
			require.LessOrEqual(t, len(sent), len(frame.bytes())*9/8+3)
			require.Equal(t, finText|rsv1, int(sent[0]))
			_, _ = stream.Write(payloadOf(sent))
			_, _ = stream.WriteString(flushTail)
			got := make([]byte, len(message))
			_, err := io.ReadFull(r, got)
			require.NoError(t, err, "message %d", n)
			require.Equal(t, string(message), string(got), "message %d", n)
			text = append(text, message...)
			require.GreaterOrEqual(t, len(w.Text()), min(len(text), deflate.WindowBytes))
			require.True(t, bytes.HasSuffix(text, w.Text()))
		}
	})
}

// payloadOf returns the payload of a server's frame.
func payloadOf(frame []byte) []byte {
	switch frame[1] {
	case 126:
		return frame[4:]
	case 127:
		return frame[10:]
	}
	return frame[2:]
}

// FuzzWindow_ReceivedMessagesAreOneStream decompresses random messages of a client that keeps a window.
func FuzzWindow_ReceivedMessagesAreOneStream(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		var out bytes.Buffer
		c, err := klauspost.NewWriterWindow(&out, deflate.WindowBytes)
		require.NoError(t, err)
		var w deflate.Window
		for n := range 200 {
			message := windowMessage(random)
			out.Reset()
			_, _ = c.Write(message)
			_ = c.Flush()
			compressed := strings.TrimSuffix(out.String(), flushTail)
			var r io.Reader = strings.NewReader(compressed)
			if random.IntN(4) == 0 {
				r = iotest.OneByteReader(r)
			}
			in := inflate(r, 1<<20, &w)
			got, err := io.ReadAll(iotest.HalfReader(in))
			in.release()
			require.NoError(t, err, "message %d", n)
			require.Equal(t, string(message), string(got), "message %d", n)
		}
	})
}
