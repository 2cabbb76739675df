package wsconn_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The conformance tests write a case as a line: what the client sends, "=>", and all that must come back.
//
//	t"a" P"p" C"b" => O"p" "ab"      a text in two fragments with a ping between: a pong and the echo
//	T"a" !P => "a" 1002              a ping without a mask: the server closes with 1002
//
// A frame is a letter and a payload. T is a text, B binary, C a continuation, P a ping, O a pong, X a close frame, R3 one
// with the reserved opcode 3; those in small letters are not final. Behind the letter, ^40 sets reserved bits, z compresses
// the payload, and /5 splits it into fragments of 5 bytes. A payload is a quoted text, *9 for so many bytes, the code and the
// reason of a close frame, or nothing. "!" is a frame without a mask, 90x repeats one, and <8100> are bytes.
//
// Of what comes back, a payload alone is a text, B the echo of a binary message, O a pong, and a number the code of the close
// frame: "1002|1007" are two that conform to the RFC, and 0 is a close frame without one. If there is none, the connection
// stays open.

// A notation is the rest of a line.
type notation struct{ rest string }

func (n *notation) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(n.rest, prefix)
	n.rest = rest
	return ok
}

// word removes the longest prefix of these characters.
func (n *notation) word(characters string) string {
	rest := strings.TrimLeft(n.rest, characters)
	word := n.rest[:len(n.rest)-len(rest)]
	n.rest = rest
	return word
}

const digits = "0123456789"

func (n *notation) number() int {
	v, _ := strconv.Atoi(n.word(digits))
	return v
}

// count returns how often the next frame is repeated.
func (n *notation) count() int {
	before := n.rest
	if count := n.number(); count > 0 && n.skip("x") {
		return count
	}
	n.rest = before
	return 1
}

func (n *notation) payload() string {
	if n.skip("*") {
		return repeated(n.number())
	}
	quoted, err := strconv.QuotedPrefix(n.rest)
	if err != nil {
		return ""
	}
	n.skip(quoted)
	text, _ := strconv.Unquote(quoted)
	return text
}

// frames returns what the next element sends.
func (n *notation) frames() [][]byte {
	if n.skip("<") {
		b, _ := hex.DecodeString(n.word(digits + "abcdef"))
		n.skip(">")
		return [][]byte{b}
	}
	count, unmasked := n.count(), n.skip("!")
	letter := n.rest[:1]
	n.skip(letter)
	opcodes := map[string]byte{"T": text, "B": binaryData, "C": continuation, "P": ping, "O": pong, "X": closing}
	first := opcodes[strings.ToUpper(letter)]
	if strings.ToUpper(letter) == "R" {
		op, _ := strconv.ParseUint(n.rest[:1], 16, 8)
		n.rest, first = n.rest[1:], byte(op)
	}
	if letter < "a" {
		first |= fin
	}
	if n.skip("^") {
		bits, _ := strconv.ParseUint(n.rest[:2], 16, 8)
		n.rest, first = n.rest[2:], first|byte(bits)
	}
	compress, size := n.skip("z"), 0
	if n.skip("/") {
		size = n.number()
	}
	code := n.word(digits)
	payload := n.payload()
	if code != "" {
		number, _ := strconv.Atoi(code)
		payload = closePayload(number, payload)
	}
	if compress {
		first, payload = first|rsv1, deflated(payload)
	}
	switch {
	case unmasked:
		header := clientHeader(first, len(payload))
		header[1] &^= 0x80
		return [][]byte{append(header, payload...)}
	case size > 0:
		return fragments(first&^fin, payload, size)
	}
	return [][]byte{bytes.Repeat(clientFrame(first, payload), count)}
}

// listed returns the lines of a group of testdata/conformance.txt.
func listed(t *testing.T, group string) string {
	t.Helper()
	all, err := os.ReadFile("testdata/conformance.txt")
	require.NoError(t, err)
	_, lines, found := strings.Cut(string(all), "\n== "+group+"\n")
	require.True(t, found, group)
	lines, _, _ = strings.Cut(lines, "\n== ")
	return lines
}

// wireCases returns the cases of lines. offer is that of all of them.
func wireCases(offer string, lines ...string) (cases []wireCase) {
	for line := range strings.Lines(strings.Join(lines, "\n")) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		sent, answers, found := strings.Cut(line+" ", " =>")
		if !found {
			panic("no answers: " + line)
		}
		tt := wireCase{name: fmt.Sprintf("%.100s", line), offer: offer}
		for n := (&notation{sent}); n.rest != ""; n.word(" ") {
			tt.frames = append(tt.frames, n.frames()...)
		}
		for n := (&notation{strings.TrimSpace(answers)}); n.rest != ""; n.word(" ") {
			n.answer(&tt)
		}
		cases = append(cases, tt)
	}
	return cases
}

// answer adds the next element of what comes back.
func (n *notation) answer(tt *wireCase) {
	count := n.count()
	if rest := n.rest; strings.ContainsAny(rest[:1], digits) {
		tt.code, tt.orCode = n.number(), 0
		if tt.code == 0 {
			tt.code = noCode
		}
		if n.skip("|") {
			tt.orCode = n.number()
		}
		return
	}
	var f serverFrame
	switch {
	case n.skip("B"):
		f = serverFrame{fin | text, echoOfBinary(n.payload())}
	case n.skip("O"):
		f = serverFrame{fin | pong, n.payload()}
	default:
		f = serverFrame{fin | text, n.payload()}
	}
	tt.want = append(tt.want, slices.Repeat([]serverFrame{f}, count)...)
}

// each returns lines for all values.
func each[V any](format string, values ...V) string {
	var lines strings.Builder
	for _, v := range values {
		fmt.Fprintf(&lines, format+"\n", v)
	}
	return lines.String()
}
