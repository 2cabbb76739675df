package wsconn_test

import (
	"fmt"
	"slices"
	"testing"
)

// TestConformance_Fragments is group 5.
func TestConformance_Fragments(t *testing.T) {
	t.Parallel()
	ten := slices.Repeat([][]byte{clientFrame(text, "a"), clientFrame(fin|continuation, "b")}, 10)
	var tenEchoes []serverFrame
	for range 10 {
		tenEchoes = append(tenEchoes, echoes("ab")...)
	}
	pongThenEcho := func(payload, message string) []serverFrame {
		return []serverFrame{{fin | pong, payload}, {fin | text, message}}
	}
	runWireCases(t, len(deliveries), []wireCase{
		{name: "ping", frames: [][]byte{clientFrame(ping, "a"), clientFrame(fin|continuation, "b")}, code: 1002},
		{name: "pong", frames: [][]byte{clientFrame(pong, "a"), clientFrame(fin|continuation, "b")}, code: 1002},
		{
			name:   "ping inside a text",
			frames: [][]byte{clientFrame(text, "a"), clientFrame(ping, "p"), clientFrame(fin|continuation, "b")},
			code:   1002,
		},
		{name: "text", frames: [][]byte{clientFrame(text, "a"), clientFrame(fin|continuation, "b")}, want: echoes("ab")},
		{name: "binary", frames: [][]byte{clientFrame(binaryData, "a"), clientFrame(fin|continuation, "b")}, want: echoes(echoOfBinary("ab"))},
		{name: "10 texts", frames: ten, want: tenEchoes},
		{
			name:   "empty fragments",
			frames: [][]byte{clientFrame(text, ""), clientFrame(continuation, ""), clientFrame(fin|continuation, "")},
			want:   echoes(""),
		},
		{
			name:   "data in the middle fragment only",
			frames: [][]byte{clientFrame(text, ""), clientFrame(continuation, "m"), clientFrame(fin|continuation, "")},
			want:   echoes("m"),
		},
		{
			name:   "ping between",
			frames: [][]byte{clientFrame(text, "a"), clientFrame(fin|ping, "p"), clientFrame(fin|continuation, "b")},
			want:   pongThenEcho("p", "ab"),
		},
		{
			name:   "pong between",
			frames: [][]byte{clientFrame(text, "a"), clientFrame(fin|pong, "p"), clientFrame(fin|continuation, "b")},
			want:   echoes("ab"),
		},
		{
			name: "pings between 5 fragments",
			frames: [][]byte{
				clientFrame(text, "1"), clientFrame(continuation, "2"), clientFrame(fin|ping, "p"), clientFrame(continuation, "3"),
				clientFrame(continuation, "4"), clientFrame(fin|ping, "q"), clientFrame(fin|continuation, "5"),
			},
			want: append([]serverFrame{{fin | pong, "p"}}, pongThenEcho("q", "12345")...),
		},
		{
			name: "binary with pings between 5 fragments",
			frames: [][]byte{
				clientFrame(binaryData, "1"), clientFrame(continuation, "2"), clientFrame(fin|ping, "p"), clientFrame(continuation, "3"),
				clientFrame(continuation, "4"), clientFrame(fin|ping, "q"), clientFrame(fin|continuation, "5"),
			},
			want: append([]serverFrame{{fin | pong, "p"}}, pongThenEcho("q", echoOfBinary("12345"))...),
		},
		{name: "last continuation first", frames: [][]byte{clientFrame(fin|continuation, "x"), clientFrame(fin|text, "a")}, code: 1002},
		{name: "empty last continuation first", frames: [][]byte{clientFrame(fin|continuation, ""), clientFrame(fin|text, "a")}, code: 1002},
		{name: "continuation first", frames: [][]byte{clientFrame(continuation, "x"), clientFrame(fin|text, "a")}, code: 1002},
		{
			name:   "continuation behind a message",
			frames: [][]byte{clientFrame(fin|text, "a"), clientFrame(continuation, "x")},
			want:   echoes("a"),
			code:   1002,
		},
		{
			name:   "continuation behind a fragmented message",
			frames: [][]byte{clientFrame(text, "a"), clientFrame(fin|continuation, "b"), clientFrame(continuation, "x"), clientFrame(fin|text, "c")},
			want:   echoes("ab"),
			code:   1002,
		},
		{
			name:   "continuation before a fragmented message",
			frames: [][]byte{clientFrame(continuation, "x"), clientFrame(text, "a"), clientFrame(fin|continuation, "b")},
			code:   1002,
		},
		{
			name:   "last continuation before a fragmented message",
			frames: [][]byte{clientFrame(fin|continuation, "x"), clientFrame(text, "a"), clientFrame(fin|continuation, "b")},
			code:   1002,
		},
		{name: "text inside a text", frames: [][]byte{clientFrame(text, "a"), clientFrame(fin|text, "b")}, code: 1002},
		{name: "binary inside a text", frames: [][]byte{clientFrame(text, "a"), clientFrame(fin|binaryData, "b")}, code: 1002},
		{name: "fragment of a text inside a text", frames: [][]byte{clientFrame(text, "a"), clientFrame(text, "b")}, code: 1002},
		{name: "text inside a binary", frames: [][]byte{clientFrame(binaryData, "a"), clientFrame(fin|text, "b")}, code: 1002},
		{
			name:   "text inside a text behind an echo",
			frames: [][]byte{clientFrame(text, "a"), clientFrame(fin|continuation, "b"), clientFrame(text, "a"), clientFrame(fin|text, "b")},
			want:   echoes("ab"),
			code:   1002,
		},
	})
}

// TestConformance_BigMessages is group 9, up to the maximum of the server.
func TestConformance_BigMessages(t *testing.T) {
	t.Parallel()
	var cases []wireCase
	for _, n := range []int{256 << 10, maxConformanceBytes} {
		message := repeated(n)
		cases = append(cases,
			wireCase{name: fmt.Sprintf("text of %d bytes", n), frames: [][]byte{clientFrame(fin|text, message)}, want: echoes(message)},
			wireCase{name: fmt.Sprintf("binary of %d bytes", n), frames: [][]byte{clientFrame(fin|binaryData, message)}, want: echoes(echoOfBinary(message))})
	}
	message := repeated(maxConformanceBytes)
	for _, n := range []int{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10} {
		cases = append(cases, wireCase{
			name:   fmt.Sprintf("the maximum in fragments of %d bytes", n),
			frames: fragments(text, message, n),
			want:   echoes(message),
		})
	}
	cases = append(cases,
		wireCase{name: "1 byte above the maximum", frames: [][]byte{clientFrame(fin|text, message+"x")}, code: 1009},
		wireCase{name: "1 fragment above the maximum", frames: [][]byte{clientFrame(text, message), clientFrame(fin|continuation, "x")}, code: 1009},
		wireCase{name: "many fragments above the maximum", frames: fragments(binaryData, message+"x", 64), code: 1009},
		wireCase{
			name:   "many small messages",
			frames: slices.Repeat([][]byte{clientFrame(fin|text, "a"), clientFrame(fin|binaryData, repeated(300))}, 250),
			want:   slices.Repeat(echoes("a", echoOfBinary(repeated(300))), 250),
		})
	runWireCases(t, 1, cases)
}
