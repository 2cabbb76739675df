package wsconn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// wellFormed is Table 3-7 of the Unicode Standard, well-formed UTF-8 byte sequences: the ranges
// of the bytes of a code point.
var wellFormed = [][][2]byte{
	{{0x00, 0x7f}},
	{{0xc2, 0xdf}, {0x80, 0xbf}},
	{{0xe0, 0xe0}, {0xa0, 0xbf}, {0x80, 0xbf}},
	{{0xe1, 0xec}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xed, 0xed}, {0x80, 0x9f}, {0x80, 0xbf}},
	{{0xee, 0xef}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xf0, 0xf0}, {0x90, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xf1, 0xf3}, {0x80, 0xbf}, {0x80, 0xbf}, {0x80, 0xbf}},
	{{0xf4, 0xf4}, {0x80, 0x8f}, {0x80, 0xbf}, {0x80, 0xbf}},
}

// scanUTF8 returns the length of the shortest invalid prefix of s, or -1 if there is none, and
// whether s ends inside a code point.
func scanUTF8[S string | []byte](s S) (invalid int, inside bool) {
	for i := 0; i < len(s); {
		n, ok := scanCodePoint(s[i:])
		if !ok {
			return i + n, false
		}
		if n == 0 {
			return -1, true
		}
		i += n
	}
	return -1, false
}

// scanCodePoint returns the length of the first code point, 0 if s ends inside it; or false and
// the length up to the first byte that is wrong.
func scanCodePoint[S string | []byte](s S) (n int, ok bool) {
	for _, row := range wellFormed {
		if s[0] < row[0][0] || s[0] > row[0][1] {
			continue
		}
		for i, limits := range row {
			if i == len(s) {
				return 0, true
			}
			if s[i] < limits[0] || s[i] > limits[1] {
				return i + 1, false
			}
		}
		return len(row), true
	}
	return 1, false
}

// validTexts are the valid cases of group 6.
func validTexts() []string {
	texts := []string{
		"", "Hello-µ@ßöäüàá-UTF-8!!", "κόσμε", "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5",
		"\x00", "\x7f", "\u0080", "\u07ff", "\u0800", "\uffff", "\U00010000", "\U0010ffff", // the borders of each length
		"\ud7ff", "\ue000", "\ufffd", "\ufdd0", "\ufdef", "\U0003ffff", "\u0fff", "\u1000", "\ucfff", "\ud000", "\U0003ffff", "\U00040000",
		"\U000fffff", "\U00100000", "\ufeff", "\ufff9", "\ufffb",
	}
	for plane := rune(0); plane <= 16; plane++ { // noncharacters are valid
		texts = append(texts, string(plane<<16|0xfffe), string(plane<<16|0xffff))
	}
	return texts
}

// invalidTexts are the invalid cases of group 6, which contain those of Markus Kuhn's stress
// test.
func invalidTexts() []string {
	texts := []string{
		"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80\x65\x64\x69\x74\x65\x64",
		"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80\x65\x64\x69\x74\x65\x64",
		"\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", // the first of 5 and of 6 bytes
		"\xf7\xbf\xbf\xbf", "\xfb\xbf\xbf\xbf\xbf", "\xfd\xbf\xbf\xbf\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", // above U+10FFFF
		"\xfe", "\xff", "\xfe\xfe\xff\xff", // impossible bytes
		"\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xf8\x80\x80\x80\xaf", "\xfc\x80\x80\x80\x80\xaf", // overlong slashes
		"\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf8\x87\xbf\xbf\xbf", "\xfc\x83\xbf\xbf\xbf\xbf", // the greatest overlong
		"\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf8\x80\x80\x80\x80", "\xfc\x80\x80\x80\x80\x80", // overlong NUL
		"\xed\xa0\x80", "\xed\xad\xbf", "\xed\xae\x80", "\xed\xaf\xbf", "\xed\xb0\x80", "\xed\xbe\x80", "\xed\xbf\xbf", // surrogates
		"\xed\xa0\x80\xed\xb0\x80", "\xed\xa0\x80\xed\xbf\xbf", "\xed\xad\xbf\xed\xb0\x80", "\xed\xad\xbf\xed\xbf\xbf",
		"\xed\xae\x80\xed\xb0\x80", "\xed\xae\x80\xed\xbf\xbf", "\xed\xaf\xbf\xed\xb0\x80", "\xed\xaf\xbf\xed\xbf\xbf",
		"\xc3(", "\xe2(\xa1", "\xe2\x82(", "\xf0(\x8c\xbc", "\xf0\x90(\xbc", "\xf0\x90\x8c(", "text \xe2\x82 text",
	}
	continuations := ""
	for b := 0x80; b <= 0xbf; b++ {
		continuations += string([]byte{byte(b)})
	}
	for n := 1; n <= 7; n++ {
		texts = append(texts, continuations[:n])
	}
	texts = append(texts, continuations, "\xbf")
	for _, starts := range [][2]int{{0xc0, 0xdf}, {0xe0, 0xef}, {0xf0, 0xf7}, {0xf8, 0xfb}, {0xfc, 0xfd}} { // lonely, each before a space
		all := ""
		for b := starts[0]; b <= starts[1]; b++ {
			all += string([]byte{byte(b), ' '})
		}
		texts = append(texts, all)
	}
	incomplete := ""
	for _, s := range []string{
		"\xc0", "\xc2", "\xdf", "\xe0", "\xe0\x80", "\xe0\xa0", "\xef\xbf", "\xf0", "\xf0\x80\x80", "\xf0\x90", "\xf0\x90\x80", "\xf4\x8f\xbf",
		"\xf7\xbf\xbf", "\xf8\x80\x80\x80", "\xfb\xbf\xbf\xbf", "\xfc\x80\x80\x80\x80", "\xfd\xbf\xbf\xbf\xbf",
	} {
		incomplete += s
		texts = append(texts, s, "text "+s)
	}
	texts = append(texts, incomplete)
	for _, valid := range []string{"κόσμε", "\U0001f600\U0010ffff"} { // all prefixes that end inside a code point
		for n := range len(valid) {
			if _, inside := scanUTF8(valid[:n]); inside {
				texts = append(texts, valid[:n])
			}
		}
	}
	return texts
}

// TestConformance_ValidUTF8 sends each text in a frame, in fragments, and compressed.
func TestConformance_ValidUTF8(t *testing.T) {
	t.Parallel()
	texts := validTexts()
	for _, n := range []int{3, 510, 511, 4093, 16381, 65533} { // across the borders of buffers
		texts = append(texts, repeated(n)+"κόσμε\U0001f600"+repeated(n))
	}
	var sent, answers strings.Builder
	for _, s := range texts {
		size := 1 + len(s)/7
		fmt.Fprintf(&sent, `T%[1]q Tz%[1]q T/%[2]d%[1]q t"a" C%[1]q Tz/%[2]d%[1]q `, s, size)
		fmt.Fprintf(&answers, ` %[1]q %[1]q %[1]q %[2]q %[1]q`, s, "a"+s)
	}
	runWireCases(t, 3, wireCases("permessage-deflate", sent.String()+"=>"+answers.String()))
}

// TestConformance_InvalidUTF8 sends each text in a frame, in fragments of 1 byte, and compressed.
// A text in a binary message is not checked.
func TestConformance_InvalidUTF8(t *testing.T) {
	t.Parallel()
	texts := invalidTexts()
	all := strings.Join(texts, "")
	runWireCases(t, 1, slices.Concat(
		wireCases("", each(`T%q T"b" => 1007`, texts...), each(`T/1%q => 1007`, texts...)),
		wireCases("permessage-deflate", each(`T"a" Tz%q T"b" => "a" 1007`, texts...), each(`Tz/3%q => 1007`, texts...),
			each(`B%[1]q Bz%[1]q B/1%[1]q => B%[1]q B%[1]q B%[1]q`, all)),
	))
}

// TestConformance_InvalidUTF8ClosesAtOnce sends nothing after the first invalid byte.
func TestConformance_InvalidUTF8ClosesAtOnce(t *testing.T) {
	t.Parallel()
	// cut returns a frame of which the end is missing.
	cut := func(first byte, payload string, missing int) string {
		whole := clientFrame(first, payload+repeated(missing))
		return fmt.Sprintf("<%x>", whole[:len(whole)-missing])
	}
	lines := []string{
		cut(fin|text, repeated(70_000)+"\xff", 70_000) + " => 1007",
		`t"\xe2" c"\x82" C => 1007`, // the end is inside a code point
	}
	for _, s := range invalidTexts() {
		invalid, _ := scanUTF8(s)
		if invalid < 0 {
			continue // it is valid as the beginning of a text
		}
		before, last := s[:invalid-1], s[invalid-1:invalid]
		lines = append(lines, cut(fin|text, before+last, 30)+" => 1007", fmt.Sprintf("t%q => 1007", before+last),
			fmt.Sprintf(`t%q P"\xff" %s => O"\xff" 1007`, "a"+before, cut(continuation, last, 1000)))
	}
	runWireCases(t, 1, wireCases("", lines...))
}
