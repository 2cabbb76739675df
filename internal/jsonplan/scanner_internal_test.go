package jsonplan

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// read reads one value with a method of Scanner.
func read[T any](text string, method func(*scanner) T) (value T, ok bool) {
	s := scanner{text: []byte(text)}
	value = method(&s)
	return value, s.finished()
}

// checkReads checks that a method reads every text of valid as the library does, and none of left,
// except where the library has the same result.
func checkReads[T any](t *testing.T, method func(*scanner) T, valid, left []string) {
	t.Helper()
	for _, text := range append(valid, "null", " null\n") {
		var want T
		require.NoError(t, jsonv2.Unmarshal([]byte(text), &want, jsonv2.AllowInvalidUTF8(true)), text)
		got, ok := read(text, method)
		assert.True(t, ok, "%q is left to the library", text)
		assert.True(t, reflect.DeepEqual(want, got), "%q: %v instead of %v", text, got, want)
		for n := range text {
			left = append(left, text[:n])
		}
		left = append(left, text+"x", text+"0", text+",", "x"+text)
	}
	for _, text := range append(left, "", " ", "nul", "nullnull", "{}", "[]", "\x00", "\ufeff1") {
		got, ok := read(text, method)
		var want T
		err := jsonv2.Unmarshal([]byte(text), &want, jsonv2.AllowInvalidUTF8(true))
		if ok {
			assert.NoError(t, err, "%q", text)
			assert.True(t, reflect.DeepEqual(want, got), "%q: %v instead of %v", text, got, want)
		}
	}
}

// checkLeaves checks that a method leaves every text to the library.
func checkLeaves[T any](t *testing.T, method func(*scanner) T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, ok := read(text, method)
		assert.False(t, ok, "%q", text)
	}
}

func TestScanner_ReadsStringsAsTheLibraryDoes(t *testing.T) {
	valid := []string{`""`, `"a"`, ` "a b" `, `"ü€😀"`, `"\u00fc\ud83d\uDE00"`, `"\"\\\/\b\f\n\r\t\u0000"`, `"\ufffd"`, "\"\u2028\x7f\""}
	for n := range 20 { // around the words that are compared at once
		valid = append(valid, `"`+strings.Repeat("a", n)+`"`, `"`+strings.Repeat("a", n)+`\n"`, `"`+strings.Repeat("a", n)+`ü`+strings.Repeat("b", n)+`"`)
	}
	checkReads(t, (*scanner).readString, valid, []string{`"\ud83d\u0041"`, `"\ud83d"`, `"\ude00"`})
	checkLeaves(t, (*scanner).readString, "\"\xff\"", "\"aaaaaaaa\xc3\"", `"\x"`, `"\u12g4"`, "\"\n\"", "\"aaaaaaaa\taaa\"", "\"ü\x01\"", `1`, `true`)
}

func TestScanner_ReadsIntegersAsTheLibraryDoes(t *testing.T) {
	texts := []string{"0", "-0", "1", " -1 ", "127", "-128"}
	other := []string{
		"00", "01", "-", "--1", "+1", "1.0", "1e2", "1.", "1E0", "0x1", `"1"`, "128", "-129", "255", "256", "32768", "-32769", "65536", "2147483648", "4294967296",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616",
		"10000000000000000000", "99999999999999999999", "36893488147419103232", "184467440737095516150", "340282366920938463463374607431768211456",
	}
	checkReads(t, func(s *scanner) int8 { return int8(s.readInt(8)) }, texts, other)
	checkReads(t, func(s *scanner) int16 { return int16(s.readInt(16)) }, append(texts, "32767"), other)
	checkReads(t, func(s *scanner) int32 { return int32(s.readInt(32)) }, append(texts, "-2147483648"), other)
	checkReads(t, func(s *scanner) int64 { return s.readInt(64) }, append(texts, "9223372036854775807", "-9223372036854775808"), other)
	unsigned := []string{"0", "1", "255"}
	checkReads(t, func(s *scanner) uint8 { return uint8(s.readUint(8)) }, unsigned, other)
	checkReads(t, func(s *scanner) uint32 { return uint32(s.readUint(32)) }, append(unsigned, "4294967295"), other)
	checkReads(t, func(s *scanner) uint64 { return s.readUint(64) }, append(unsigned, "10000000000000000000", "18446744073709551615"), append(other, "-0", "-1"))
}

func TestScanner_ReadsFloatsAsTheLibraryDoes(t *testing.T) {
	texts := []string{"0", "-0", "1", "-1.5", "1e2", "1E+2", "1.25e-2", "123456789012345678901234567890", "0.1", "1e-400"}
	other := []string{".5", "1.", "-", "1e", "1e+", "1.e1", "01", "0x1p1", "1_0", "inf", "NaN", "Infinity", "1e400", "3.5e38", `"1"`}
	checkReads(t, func(s *scanner) float64 { return s.readFloat(64) }, texts, other)
	checkReads(t, func(s *scanner) float32 { return float32(s.readFloat(32)) }, texts, other)
	got, ok := read("-0", func(s *scanner) float64 { return s.readFloat(64) })
	assert.True(t, ok && math.Signbit(got))
}

func TestScanner_ReadsBooleansBytesAndTimesAsTheLibraryDoes(t *testing.T) {
	checkReads(t, (*scanner).readBool, []string{"true", " false "}, []string{"True", "1", `"true"`, "t"})
	checkReads(t, (*scanner).readBytes, []string{`""`, `"AA=="`, `"/+8="`, `"AAAA"`, `"AB=="`}, []string{`"AA"`, `"A\n="`, `"-_8="`, `"AA==AA=="`, `"AAA\u0041"`, "1"})
	array := func(s *scanner) (b [2]byte) {
		b[0] = 7
		s.readByteArray(b[:])
		return b
	}
	checkReads(t, array, []string{`"/+8="`}, []string{`""`, `"AA=="`, `"AAAA"`, `"AAAAAAAA"`, `"/+8"`})
	valid := []string{
		`"2006-01-02T15:04:05Z"`, `"2006-01-02T15:04:05.999999999Z"`, `"2006-01-02T15:04:05.1+05:30"`, `"0000-01-01T00:00:00-23:59"`, `"2024-02-29T23:59:59Z"`,
	}
	checkReads(t, (*scanner).readTime, valid, []string{
		`"2006-01-02T15:04:05,1Z"`, `"2006-01-02T1:04:05Z"`, `"2006-01-02T15:04:05+24:00"`, `"2006-01-02T15:04:05+23:60"`, `"2023-02-29T00:00:00Z"`, `"2006-01-02 15:04:05Z"`,
		`"2006-01-02T15:04:05"`, `"\u0032006-01-02T15:04:05Z"`, `""`, `0`,
	})
}

func TestScanner_ReadsAnyValueWithTheLibrary(t *testing.T) {
	value := func(s *scanner) (v any) {
		s.readLibrary(reflect.TypeOf(&v).Elem(), unsafe.Pointer(&v))
		return v
	}
	checkReads(t, value, []string{`{"a":[1,{"b":"]}\"\\"}],"c":{}}`, `"a,b"`, "1.5", "[true, null]", " [ ] ", `"\\"`, `["ü\""]`}, []string{
		"[", "]", "[}", `{"a":1,"a":2}`, `"`, `"\"`, "[1,]", "1:2", `"a" "b"`, "nul", "[1]]", "tru e",
	})
	deep := strings.Repeat("[", 1001) + strings.Repeat("]", 1001)
	checkLeaves(t, value, deep)
	checkReads(t, value, []string{deep[1:2001]}, nil)
}

func TestScanner_LeavesUnknownMembersOfLibraryValues(t *testing.T) {
	value := func(s *scanner) (v struct{ A int }) {
		s.strict = true
		s.readLibrary(reflect.TypeOf(&v).Elem(), unsafe.Pointer(&v))
		return v
	}
	checkLeaves(t, value, `{"A":1,"B":2}`)
	checkReads(t, value, []string{`{"A":1}`}, nil)
}

func TestScanner_ReadsListsAndMembers(t *testing.T) {
	list := func(s *scanner) []int {
		if s.null() {
			return nil
		}
		v := []int{}
		for more := s.array(); more; more = s.nextElement() {
			v = append(v, int(s.readInt(64)))
		}
		return v
	}
	checkReads(t, list, []string{"[]", "[ ]", "[1]", "[ 1 , 2 ,3]"}, []string{"[,]", "[1,]", "[1 2]", "[1}", "[1,,2]", "[[1]]", "{}", "[\v1]"})

	object := func(s *scanner) map[string]int {
		if s.null() {
			return nil
		}
		v := map[string]int{}
		for more := s.object(); more; more = s.nextMember() {
			key := s.key()
			if _, twice := v[key]; twice {
				s.fail()
			}
			v[key] = int(s.readInt(64))
		}
		return v
	}
	checkReads(t, object, []string{"{}", "{ }", `{"a":1}`, ` { "a" : 1 , "\u0062\n" : 2 } `, `{"":1}`}, []string{
		"{,}", `{"a":1,}`, `{"a"1}`, `{"a":}`, `{a:1}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{1:1}`, `{null:1}`, `{"a":1]`, `{"a"::1}`,
	})
}

func TestScanner_ReadsNames(t *testing.T) {
	name := func(s *scanner) (name string) {
		s.object()
		name = string(s.name())
		s.readInt(64)
		s.nextMember()
		return name
	}
	got, ok := read(`{ "größe" : 1 }`, name)
	assert.True(t, ok)
	assert.Equal(t, "größe", got)
	got, ok = read(`{"a\u0062\\":1}`, name)
	assert.True(t, ok)
	assert.Equal(t, `ab\`, got)
	checkLeaves(t, name, "{\"a\tb\":1}", `{"a":1`, `{"a"1}`, `{a:1}`, `{"a`)
}

func TestScanner_StaysFailed(t *testing.T) {
	s := scanner{text: []byte(`[1,"a",true]`)}
	assert.True(t, s.array())
	s.fail()
	assert.False(t, s.nextElement())
	assert.Empty(t, s.readString())
	assert.Zero(t, s.readInt(64))
	assert.Nil(t, s.name())
	assert.False(t, s.object())
	assert.Zero(t, s.readTime())
	assert.False(t, s.finished())
}

func TestScanner_DoesNotAllocateExceptStrings(t *testing.T) {
	text := []byte(`{"id":"ab","n":-12,"f":1.5,"at":"2006-01-02T15:04:05Z","ok":true}`)
	var at time.Time
	var s scanner
	allocs := testing.AllocsPerRun(100, func() {
		s.text, s.at = text, 0
		for more := s.object(); more; more = s.nextMember() {
			switch string(s.name()) {
			case "id":
				_ = s.readString()
			case "n":
				s.readInt(64)
			case "f":
				s.readFloat(64)
			case "at":
				at = s.readTime()
			case "ok":
				s.readBool()
			}
		}
		if !s.finished() {
			panic("not read")
		}
	})
	assert.LessOrEqual(t, allocs, 1.0)
	assert.Equal(t, 2006, at.Year())
}
