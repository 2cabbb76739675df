package wsconn_test

import (
	"bytes"
	"compress/flate"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
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
		cases = append(cases, wireCase{name: fmt.Sprintf("%d bytes", n), offer: "permessage-deflate", frames: frames, want: want})
	}
	runWireCases(t, 1, cases)
}

// TestConformance_DeflateExamples has the examples of RFC 7692, section 7.2.3, and others like
// them.
func TestConformance_DeflateExamples(t *testing.T) {
	t.Parallel()
	hello := "\xf2\x48\xcd\xc9\xc9\x07\x00"
	cases := []wireCase{
		{name: "one block", frames: [][]byte{clientFrame(fin|rsv1|text, hello)}, want: echoes("Hello")},
		{name: "fragmented", frames: [][]byte{clientFrame(rsv1|text, hello[:3]), clientFrame(fin|continuation, hello[3:])}, want: echoes("Hello")},
		{name: "octet-wise fragments", frames: fragments(rsv1|text, hello, 1), want: echoes("Hello")},
		{
			name:   "empty fragments",
			frames: [][]byte{clientFrame(rsv1|text, ""), clientFrame(continuation, hello), clientFrame(fin|continuation, "")},
			want:   echoes("Hello"),
		},
		{
			name:   "the window of another message",
			frames: [][]byte{clientFrame(fin|rsv1|text, hello), clientFrame(fin|rsv1|text, "\xf2\x00\x11\x00\x00")},
			want:   echoes("Hello"),
			code:   1002,
			orCode: 1007, // the client has broken client_no_context_takeover
		},
		{name: "stored", frames: [][]byte{clientFrame(fin|rsv1|text, "\x00\x05\x00\xfa\xffHello\x00")}, want: echoes("Hello")},
		{name: "BFINAL", frames: [][]byte{clientFrame(fin|rsv1|text, "\xf3\x48\xcd\xc9\xc9\x07\x00\x00")}, want: echoes("Hello")},
		{
			name:   "two blocks",
			frames: [][]byte{clientFrame(fin|rsv1|text, "\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00")},
			want:   echoes("Hello"),
		},
		{name: "empty", frames: [][]byte{clientFrame(fin|rsv1|text, "\x00")}, want: echoes("")},
		{name: "empty with an empty fixed block", frames: [][]byte{clientFrame(fin|rsv1|text, "\x02\x00")}, want: echoes("")},
		{name: "empty binary", frames: [][]byte{clientFrame(fin|rsv1|binaryData, "\x00")}, want: echoes(echoOfBinary(""))},
		{
			name:   "a message that is not compressed between",
			frames: [][]byte{clientFrame(fin|rsv1|text, hello), clientFrame(fin|text, hello[1:2]), clientFrame(fin|rsv1|text, hello)},
			want:   echoes("Hello", "H", "Hello"),
		},
	}
	for i := range cases {
		cases[i].offer = "permessage-deflate"
	}
	runWireCases(t, len(deliveries), cases)
}

// TestConformance_DeflateErrors sends what RFC 7692 forbids. The RFC names no close code for data that
// cannot be decompressed.
func TestConformance_DeflateErrors(t *testing.T) {
	t.Parallel()
	hello := deflated("hello, hello, hello, hello")
	bomb := deflated(strings.Repeat("\x00", 5<<20))
	corrupt := func(name string, frames ...[]byte) wireCase {
		return wireCase{name: name, frames: append(frames, clientFrame(fin|text, "b")), code: 1002, orCode: 1007}
	}
	forbidden := func(name string, frames ...[]byte) wireCase {
		return wireCase{name: name, frames: append(frames, clientFrame(fin|text, "b")), code: 1002}
	}
	cases := []wireCase{
		corrupt("reserved block type", clientFrame(fin|rsv1|text, "\xff\xff\xff\xff")),
		corrupt("stored length that does not match", clientFrame(fin|rsv1|text, "\x00\x05\x00\x00\x00Hello\x00")),
		corrupt("distance before the beginning", clientFrame(fin|rsv1|text, "\xf2\x00\x11\x00\x00")),
		corrupt("cut off", clientFrame(fin|rsv1|text, hello[:len(hello)-3])),
		corrupt("cut off in fragments", fragments(rsv1|text, hello[:len(hello)-3], 4)...),
		corrupt("corrupt in the second block", clientFrame(fin|rsv1|text, "\xf2\x48\x05\x00\x00\x00\xff\xff\xff\xff")),
		corrupt("binary", clientFrame(fin|rsv1|binaryData, "\xff\xff\xff\xff")),
		forbidden("bit 1 on a continuation", clientFrame(rsv1|text, hello[:3]), clientFrame(fin|rsv1|continuation, hello[3:])),
		forbidden("bit 1 on a continuation of a plain text", clientFrame(text, "a"), clientFrame(fin|rsv1|continuation, "b")),
		forbidden("bit 1 on a ping", clientFrame(fin|rsv1|ping, "")),
		forbidden("bit 1 on a pong", clientFrame(fin|rsv1|pong, "")),
		forbidden("bit 1 on a close frame", clientFrame(fin|rsv1|closing, closePayload(1000, ""))),
		forbidden("bit 1 on a reserved opcode", clientFrame(fin|rsv1|3, "")),
		forbidden("bit 2", clientFrame(fin|0x20|text, "a")),
		forbidden("bits 1 and 2", clientFrame(fin|rsv1|0x20|text, hello)),
		forbidden("bits 1 and 3", clientFrame(fin|rsv1|0x10|text, hello)),
		forbidden("a message inside another", clientFrame(rsv1|text, hello[:3]), clientFrame(fin|rsv1|text, hello)),
		{name: "a decompression bomb", frames: [][]byte{clientFrame(fin|rsv1|text, bomb)}, code: 1009},
		{name: "a binary bomb", frames: [][]byte{clientFrame(fin|rsv1|binaryData, bomb)}, code: 1009},
		{name: "a bomb in fragments", frames: fragments(rsv1|text, bomb, 999), code: 1009},
		{
			name:   "1 byte above the maximum",
			frames: [][]byte{clientFrame(fin|rsv1|text, deflated(repeated(maxConformanceBytes+1)))},
			code:   1009,
		},
		{
			name:   "the maximum",
			frames: [][]byte{clientFrame(fin|rsv1|text, deflated(repeated(maxConformanceBytes)))},
			want:   echoes(repeated(maxConformanceBytes)),
		},
	}
	for i := range cases {
		cases[i].offer = "permessage-deflate"
	}
	runWireCases(t, 1, cases)
}

// TestConformance_DeflateOffers is RFC 7692, section 7.1, for each combination of parameters.
func TestConformance_DeflateOffers(t *testing.T) {
	t.Parallel()
	addr := transports[0].serveEcho(t).Listener.Addr().String()
	check := func(offer string, accepted, serverBits, clientBits bool) {
		p, answer := dialPeer(t, addr, false, offer)
		defer func() { _ = p.Close() }()
		if !accepted {
			require.Empty(t, answer, offer)
			return
		}
		params := strings.Split(strings.ReplaceAll(answer, " ", ""), ";")
		require.Equal(t, "permessage-deflate", params[0], offer)
		require.Contains(t, params, "server_no_context_takeover", offer)
		require.Contains(t, params, "client_no_context_takeover", offer)
		require.Equal(t, serverBits, slices.Contains(params, "server_max_window_bits=15"), "%s: %s", offer, answer)
		known := 3
		if serverBits {
			known++
		}
		if clientBits && slices.ContainsFunc(params, func(p string) bool { return strings.HasPrefix(p, "client_max_window_bits=") }) {
			known++ // only then may the server answer it
		}
		require.Len(t, params, known, "%s: %s", offer, answer)
	}
	takeovers := []string{"", "; server_no_context_takeover", "; client_no_context_takeover", "; client_no_context_takeover; server_no_context_takeover"}
	windows := []string{"", "8", "9", "10", "11", "12", "13", "14", "15"}
	for _, takeover := range takeovers {
		for _, server := range windows {
			for _, client := range append(windows, "none") {
				offer := "permessage-deflate" + takeover
				if server != "" {
					offer += "; server_max_window_bits=" + server
				}
				switch client {
				case "":
				case "none":
					offer += "; client_max_window_bits"
				default:
					offer += "; client_max_window_bits=" + client
				}
				check(offer, server == "" || server == "15", server == "15", client != "")
			}
		}
	}
	for _, invalid := range []string{
		"server_no_context_takeover=1", "client_no_context_takeover=1", "server_max_window_bits",
		"server_max_window_bits=7", "server_max_window_bits=16", "server_max_window_bits=015", "server_max_window_bits=x",
		"client_max_window_bits=7", "client_max_window_bits=16", "client_max_window_bits=08", "client_max_window_bits=x",
		"client_max_window_bits=-8", "unknown", "unknown=1", "server_no_context_takeover; server_no_context_takeover",
		"client_no_context_takeover; client_no_context_takeover", "server_max_window_bits=15; server_max_window_bits=15",
		"client_max_window_bits; client_max_window_bits=10",
	} {
		check("permessage-deflate; "+invalid, false, false, false)
		check("permessage-deflate; "+invalid+", permessage-deflate", true, false, false)
		check("permessage-deflate; "+invalid+", permessage-deflate; server_max_window_bits=15", true, true, false)
	}
	check("permessage-deflate, permessage-deflate; unknown", true, false, false)
	check("x-webkit-deflate-frame", false, false, false)
	check("x-webkit-deflate-frame, permessage-deflate; client_max_window_bits", true, false, true)
	check(`permessage-deflate; server_max_window_bits="15"; client_max_window_bits="10"`, true, true, true)
	check("permessage-deflate;client_max_window_bits;server_no_context_takeover", true, false, true)
	check("PERMESSAGE-DEFLATE", true, false, false)
}

// TestConformance_DeflateWithAnotherClient uses github.com/coder/websocket as the client.
func TestConformance_DeflateWithAnotherClient(t *testing.T) {
	t.Parallel()
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			server := tr.serveEcho(t)
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			for _, mode := range []websocket.CompressionMode{websocket.CompressionNoContextTakeover, websocket.CompressionContextTakeover} {
				opts := &websocket.DialOptions{HTTPClient: client, CompressionMode: mode, CompressionThreshold: 1}
				c, _, err := websocket.Dial(t.Context(), server.URL, opts)
				require.NoError(t, err)
				c.SetReadLimit(-1)
				for _, n := range testscale.SoakSample([]int{1, 16, 256, 4096, 32768, 131072}, 2) {
					for _, m := range deflateMessages(n) {
						require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(m)))
						_, got, err := c.Read(t.Context())
						require.NoError(t, err)
						require.True(t, m == string(got), "%d bytes", n)
						require.NoError(t, c.Write(t.Context(), websocket.MessageBinary, []byte(m)))
						_, got, err = c.Read(t.Context())
						require.NoError(t, err)
						require.True(t, echoOfBinary(m) == string(got), "%d binary bytes", n)
					}
				}
				require.NoError(t, c.Close(websocket.StatusNormalClosure, ""))
			}
		})
	}
}
