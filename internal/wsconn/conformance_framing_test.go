package wsconn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestConformance_Framing is group 1, and the chopped message of group 10.
func TestConformance_Framing(t *testing.T) {
	t.Parallel()
	var cases []wireCase
	for _, n := range []int{0, 1, 2, 125, 126, 127, 128, 255, 256, 65535, 65536, 65537} {
		payload := repeated(n)
		cases = append(cases,
			wireCase{
				name:   fmt.Sprintf("text of %d bytes", n),
				frames: [][]byte{clientFrame(fin|text, payload)},
				want:   echoes(payload),
			},
			wireCase{
				name:   fmt.Sprintf("binary of %d bytes", n),
				frames: [][]byte{clientFrame(fin|binaryData, payload)},
				want:   echoes(echoOfBinary(payload)),
			},
			wireCase{
				name:   fmt.Sprintf("text of %d bytes between others", n),
				frames: [][]byte{clientFrame(fin|text, "a"), clientFrame(fin|text, payload), clientFrame(fin|binaryData, "b")},
				want:   echoes("a", payload, echoOfBinary("b")),
			})
	}
	runWireCases(t, len(deliveries), cases)
}

// repeated returns n bytes of text that do not repeat with a power of two.
func repeated(n int) string { return strings.Repeat("0123456789*", n/11+1)[:n] }

// TestConformance_Masking is RFC 6455, section 5.1: a server closes on a frame without a mask.
func TestConformance_Masking(t *testing.T) {
	t.Parallel()
	var cases []wireCase
	for name, unmasked := range map[string][]byte{
		"text":             {fin | text, 1, 'x'},
		"empty text":       {fin | text, 0},
		"binary":           {fin | binaryData, 1, 'x'},
		"first fragment":   {text, 1, 'x'},
		"text of 200":      append([]byte{fin | text, 126, 0, 200}, repeated(200)...),
		"text of 65536":    append([]byte{fin | text, 127, 0, 0, 0, 0, 0, 1, 0, 0}, repeated(65536)...),
		"ping":             {fin | ping, 0},
		"ping and payload": {fin | ping, 1, 'x'},
		"pong":             {fin | pong, 0},
		"close":            {fin | closing, 2, 3, 232},
		"empty close":      {fin | closing, 0},
	} {
		cases = append(cases,
			wireCase{name: name, frames: [][]byte{unmasked}, code: 1002},
			wireCase{
				name:   name + " behind a text",
				frames: [][]byte{clientFrame(fin|text, "a"), unmasked, clientFrame(fin|text, "b")},
				want:   echoes("a"),
				code:   1002,
			},
			wireCase{
				name:   name + " behind a fragmented text",
				frames: [][]byte{clientFrame(text, "a"), clientFrame(fin|continuation, "b"), unmasked, clientFrame(fin|text, "c")},
				want:   echoes("ab"),
				code:   1002,
			})
	}
	cases = append(cases, wireCase{
		name:   "continuation",
		frames: [][]byte{clientFrame(text, "a"), {fin | continuation, 1, 'x'}},
		code:   1002,
	})
	runWireCases(t, len(deliveries), cases)
}

// TestConformance_Lengths is RFC 6455, section 5.2: a length has the minimal number of bytes,
// and the most significant bit of 64 is 0.
func TestConformance_Lengths(t *testing.T) {
	t.Parallel()
	key := []byte{0, 0, 0, 0}
	var cases []wireCase
	for _, opcode := range []byte{text, binaryData, continuation, ping, pong, closing} {
		var before [][]byte
		if opcode == continuation {
			before = [][]byte{clientFrame(text, "a")}
		}
		add := func(name string, orCode int, length ...byte) {
			cases = append(cases, wireCase{
				name:   fmt.Sprintf("opcode %d, %s", opcode, name),
				frames: append(slices.Clone(before), slices.Concat([]byte{fin | opcode}, length, key, []byte(repeated(125)))),
				code:   1002,
				orCode: orCode,
			})
		}
		add("2 bytes for 0", 0, 0x80|126, 0, 0)
		add("2 bytes for 1", 0, 0x80|126, 0, 1)
		add("2 bytes for 125", 0, 0x80|126, 0, 125)
		add("8 bytes for 0", 0, 0x80|127, 0, 0, 0, 0, 0, 0, 0, 0)
		add("8 bytes for 125", 0, 0x80|127, 0, 0, 0, 0, 0, 0, 0, 125)
		add("8 bytes for 126", 0, 0x80|127, 0, 0, 0, 0, 0, 0, 0, 126)
		add("8 bytes for 65535", 0, 0x80|127, 0, 0, 0, 0, 0, 0, 0xff, 0xff)
		add("2 to the 63", 1009, 0x80|127, 0x80, 0, 0, 0, 0, 0, 0, 0)
		add("2 to the 63 and 5", 1009, 0x80|127, 0x80, 0, 0, 0, 0, 0, 0, 5)
		add("all ones", 1009, 0x80|127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	}
	runWireCases(t, 1, cases)
}

// TestConformance_ReservedBits is group 3. No extension is negotiated.
func TestConformance_ReservedBits(t *testing.T) {
	t.Parallel()
	var cases []wireCase
	for bits := byte(0x10); bits <= 0x70; bits += 0x10 {
		for name, reserved := range map[string][]byte{
			"text":         clientFrame(fin|bits|text, "x"),
			"empty text":   clientFrame(fin|bits|text, ""),
			"binary":       clientFrame(fin|bits|binaryData, "x"),
			"fragment":     clientFrame(bits|text, "x"),
			"ping":         clientFrame(fin|bits|ping, "x"),
			"pong":         clientFrame(fin|bits|pong, "x"),
			"close":        clientFrame(fin|bits|closing, "\x03\xe8"),
			"empty close":  clientFrame(fin|bits|closing, ""),
			"unknown type": clientFrame(fin|bits|3, ""),
		} {
			cases = append(cases, reservedCases(fmt.Sprintf("bits %#x, %s", bits, name), reserved)...)
		}
		cases = append(cases, wireCase{
			name:   fmt.Sprintf("bits %#x, continuation", bits),
			frames: [][]byte{clientFrame(text, "a"), clientFrame(fin|bits|continuation, "b")},
			code:   1002,
		})
	}
	runWireCases(t, 1, cases)
}

// reservedCases has a frame that closes alone, behind a message, between control frames and
// messages, and inside a message.
func reservedCases(name string, reserved []byte) []wireCase {
	return []wireCase{
		{name: name + " alone", frames: [][]byte{reserved}, code: 1002},
		{
			name:   name + " between messages",
			frames: [][]byte{clientFrame(fin|text, "a"), reserved, clientFrame(fin|text, "b")},
			want:   echoes("a"),
			code:   1002,
		},
		{
			name:   name + " behind a ping",
			frames: [][]byte{clientFrame(fin|text, "a"), clientFrame(fin|ping, "p"), reserved, clientFrame(fin|ping, "q")},
			want:   append(echoes("a"), serverFrame{fin | pong, "p"}),
			code:   1002,
		},
		{
			name:   name + " inside a message",
			frames: [][]byte{clientFrame(text, "a"), reserved, clientFrame(fin|continuation, "b")},
			code:   1002,
		},
	}
}

// TestConformance_Opcodes is group 4.
func TestConformance_Opcodes(t *testing.T) {
	t.Parallel()
	var cases []wireCase
	for _, opcode := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		for _, n := range []int{0, 1, 125, 126, 300} {
			name := fmt.Sprintf("opcode %d of %d bytes", opcode, n)
			cases = append(cases, reservedCases(name, clientFrame(fin|opcode, repeated(n)))...)
		}
		cases = append(cases, wireCase{
			name:   fmt.Sprintf("fragment of opcode %d", opcode),
			frames: [][]byte{clientFrame(opcode, "a"), clientFrame(fin|continuation, "b")},
			code:   1002,
		})
	}
	runWireCases(t, 1, cases)
}
