package jsonplan

import (
	"math/bits"
	"unicode/utf8"
)

// The bytes of a word, and their high bits.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special returns a word in which the high bit of a byte is set if the byte in x is a control
// character, a quote or a backslash, or not ASCII. Bytes after the first of these may be set, too.
func special(x uint64) uint64 {
	return ((x - ones*' ') | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones) | x) & highs
}

// eightBytes returns the bytes of a text from index i on, the first one in the lowest bits: one load instruction, and
// one check of the index.
func eightBytes[T ~[]byte | string](text T, i int) uint64 {
	_ = text[i+7]
	return uint64(text[i]) | uint64(text[i+1])<<8 | uint64(text[i+2])<<16 | uint64(text[i+3])<<24 |
		uint64(text[i+4])<<32 | uint64(text[i+5])<<40 | uint64(text[i+6])<<48 | uint64(text[i+7])<<56
}

// fourBytes returns the first four bytes of a text, the first one in the lowest bits.
func fourBytes[T ~[]byte | string](text T) uint64 {
	_ = text[3]
	return uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24
}

// PlainASCII returns the length of the ASCII text before the first control character, quote or
// backslash.
func PlainASCII[T ~[]byte | string](text T) int {
	i := 0
	for ; i <= len(text)-8; i += 8 {
		if found := special(eightBytes(text, i)); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	if i > 0 { // some of the last eight bytes are known to be plain
		return len(text) - 8 + bits.TrailingZeros64(special(eightBytes(text[len(text)-8:], 0)))/8
	}
	if len(text) >= 4 && special(fourBytes(text)|fourBytes(text[len(text)-4:])<<32) == 0 {
		return len(text)
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// Plain returns the length of the text before the first control character, quote or backslash. It tests eight bytes
// at a time with Mycroft's test for a byte below n (Warren, Hacker's Delight, section 6-1).
func Plain(text []byte) int {
	i := 0
	for ; i <= len(text)-8; i += 8 {
		x := eightBytes(text, i)
		if found := ((x - ones*' ') | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones)) &^ x & highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' {
			break
		}
	}
	return i
}
