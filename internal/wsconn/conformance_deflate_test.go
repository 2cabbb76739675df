package wsconn_test

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	klauspost "github.com/klauspost/compress/flate"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

// compressed is RFC 7692, section 7.2.1: the message in blocks that are flushed after every n
// bytes. If final, the last block has the BFINAL bit, as in section 7.2.3.4.
func compressed(message string, level, n int, final bool) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, level)
	for part := range slices.Chunk([]byte(message), n) {
		_, _ = w.Write(part)
		_ = w.Flush()
	}
	if final {
		_ = w.Close()
		return b.String() + "\x00"
	}
	_ = w.Flush()
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

// deflateMessages returns messages that compress well, badly, and not at all.
func deflateMessages(n int) []string {
	random := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // the same in each run
	letters, noise := make([]byte, n), make([]byte, n)
	for i := range n {
		letters[i], noise[i] = 'a'+byte(random.IntN(16)), ' '+byte(random.IntN(95))
	}
	return []string{strings.Repeat(`{"type":"SAY","payload":{}},`, n/28+1)[:n], string(letters), string(noise)}
}

// TestConformance_CompressedMessages is group 12 and 13, without the negotiation.
func TestConformance_CompressedMessages(t *testing.T) {
	t.Parallel()
	levels := []int{flate.BestSpeed, flate.BestCompression, flate.HuffmanOnly, flate.NoCompression}
	var cases []wireCase
	for _, n := range []int{0, 1, 16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072} {
		var frames [][]byte
		var want []serverFrame
		for i, m := range deflateMessages(n) {
			level := levels[(i+n/16)%len(levels)]
			whole := compressed(m, level, n+1, false)
			blocks := compressed(m, levels[i], n/4+1, false)
			final := compressed(m, level, n/2+1, true)
			frames = append(frames,
				clientFrame(fin|rsv1|text, whole), clientFrame(fin|rsv1|binaryData, blocks),
				clientFrame(fin|text, m), clientFrame(fin|rsv1|text, final), clientFrame(fin|binaryData, m))
			frames = append(frames, fragments(rsv1|text, whole, len(whole)/3+1)...)
			frames = append(frames, clientFrame(rsv1|text, blocks), clientFrame(fin|ping, "p"), clientFrame(fin|continuation, ""))
			frames = append(frames, fragments(rsv1|binaryData, final, 256)...)
			want = append(want, echoes(m, echoOfBinary(m), m, m, echoOfBinary(m), m)...)
			want = append(want, serverFrame{fin | pong, "p"})
			want = append(want, echoes(m, echoOfBinary(m))...)
		}
		for _, offer := range []string{"permessage-deflate", "permessage-deflate; server_no_context_takeover"} {
			cases = append(cases, wireCase{name: fmt.Sprintf("%d bytes, %s", n, offer), offer: offer, frames: frames, want: want})
		}
	}
	runWireCases(t, 1, cases)
}

// TestConformance_DeflateExamples has the examples of RFC 7692, section 7.2.3, and others like
// them. A client that uses the window of another message breaks client_no_context_takeover.
func TestConformance_DeflateExamples(t *testing.T) {
	t.Parallel()
	runWireCases(t, len(deliveries), wireCases("permessage-deflate", listed(t, "compression")))
}

// TestConformance_DeflateErrors sends what RFC 7692 forbids. The RFC names no close code for data that
// cannot be decompressed.
func TestConformance_DeflateErrors(t *testing.T) {
	t.Parallel()
	hello, bomb := deflated("hello, hello, hello, hello"), deflated(strings.Repeat("\x00", 5<<20))
	cutOff := hello[:len(hello)-3]
	runWireCases(t, 1, wireCases("permessage-deflate", listed(t, "compression errors"),
		each(`T^40%q T"b" => 1002|1007`, cutOff), each(`T^40/4%q T"b" => 1002|1007`, cutOff),
		each(`T^40%q => 1009`, bomb), each(`B^40%q => 1009`, bomb), each(`T^40/999%q => 1009`, bomb)))
}

// TestConformance_Windows has clients that keep a window of 2 KiB between messages. Some of their streams end with
// a message, after which they begin with an empty window again. What is not compressed is not part of a window.
func TestConformance_Windows(t *testing.T) {
	t.Parallel()
	var cases []wireCase
	for seed := range uint64(testscale.Pick(4, 40)) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same in each run
		var out bytes.Buffer
		w, err := klauspost.NewWriterWindow(&out, 2<<10)
		require.NoError(t, err)
		tt := wireCase{name: fmt.Sprintf("seed %d", seed), offer: "permessage-deflate; client_max_window_bits"}
		for range 50 {
			message := deflateMessages(random.IntN(1 + []int{200, 200, 3000, 20_000}[random.IntN(4)]))[random.IntN(3)]
			tt.want = append(tt.want, echoes(message)...)
			if random.IntN(4) == 0 {
				tt.frames = append(tt.frames, clientFrame(fin|text, message))
				continue
			}
			out.Reset()
			_, _ = io.WriteString(w, message)
			payload := ""
			if random.IntN(8) == 0 {
				_ = w.Close()
				payload = out.String() + "\x00"
				w.Reset(&out)
			} else {
				_ = w.Flush()
				payload = strings.TrimSuffix(out.String(), "\x00\x00\xff\xff")
			}
			parts := fragments(rsv1|text, payload, 1+random.IntN(len(payload)))
			if len(parts) > 1 {
				parts = slices.Insert(parts, 1, clientFrame(fin|ping, "p"))
				tt.want = slices.Insert(tt.want, len(tt.want)-1, serverFrame{fin | pong, "p"})
			}
			tt.frames = append(tt.frames, parts...)
		}
		cases = append(cases, tt)
	}
	runWireCases(t, len(deliveries), cases)
}
