package jsonplan

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestPlan_TextsOfValues decodes texts as the fields of their kind, which must not be left to the library; and these, parts of
// them and other texts as fields of every kind.
func TestPlan_TextsOfValues(t *testing.T) {
	integers := []string{"0", "-0", "1", " -1 ", "127", "-128"}
	floats := []string{"0", "-0", "1", "-1.5", "1e2", "1E+2", "1.25e-2", "0.1", "1e-400"}
	strs := []string{
		`""`, `"a"`, ` "a b" `, `"ü€😀"`, `"\u00fc\ud83d\uDE00"`,
		`"\"\\\/\b\f\n\r\t\u0000"`, `"\ufffd"`, "\"\u2028\x7f\"",
	}
	for n := range 20 { // around the words that are compared at once
		a := strings.Repeat("a", n)
		strs = append(strs, `"`+a+`"`, `"`+a+`\n"`, `"`+a+`ü`+a+`"`)
	}
	fields := map[string][]string{
		"Bool": {"true", " false "}, "String": strs,
		"Int8": integers, "Int16": append(integers, "32767"), "Int32": append(integers, "-2147483648"),
		"Int64": append(integers, "9223372036854775807", "-9223372036854775808"),
		"Uint8": {"0", "1", "255"}, "Uint32": {"4294967295"}, "Uint64": {"10000000000000000000", "18446744073709551615"},
		"Float32": floats, "Float64": append(floats, "123456789012345678901234567890"),
		"Bytes": {`""`, `"AA=="`, `"/+8="`, `"AAAA"`}, "Array": {`"AAAA"`, `"/+8B"`},
		"Time": {
			`"2006-01-02T15:04:05Z"`, `"2006-01-02T15:04:05.999999999Z"`, `"2006-01-02T15:04:05.1+05:30"`,
			`"0000-01-01T00:00:00-23:59"`, `"2024-02-29T23:59:59Z"`,
		},
	}
	typ := reflect.TypeFor[Scalars]()
	texts := []string{
		"", " ", "nul", "nullnull", "{}", "[]", "\x00", "\ufeff1", "True", "t", `"true"`, `"\ud83d\u0041"`,
		`"\ud83d"`, `"\ude00"`, "\"\xff\"", "\"aaaaaaaa\xc3\"", `"\x"`,
		`"\u12g4"`, "\"\n\"", "\"aaaaaaaa\taaa\"", "\"ü\x01\"", "00", "01", "-", "--1", "+1", "1.0", "1.", "1E0",
		"0x1", "128", "-129", "256", "32768", "-32769", "65536",
		"2147483648", "4294967296", "9223372036854775808", "-9223372036854775809", "18446744073709551616",
		"99999999999999999999", "36893488147419103232",
		"340282366920938463463374607431768211456", ".5", "1e", "1e+", "1.e1", "0x1p1", "1_0", "inf", "NaN", "1e400",
		"3.5e38", `"AA"`, `"A\n="`, `"-_8="`, `"AA==AA=="`,
		`"AAA\u0041"`, `"AB=="`, `"AAAAAAAA"`, `"/+8"`, `"2006-01-02T15:04:05,1Z"`, `"2006-01-02T1:04:05Z"`,
		`"2006-01-02T15:04:05+24:00"`, `"2006-01-02T15:04:05+23:60"`,
		`"2023-02-29T00:00:00Z"`, `"2006-01-02 15:04:05Z"`, `"2006-01-02T15:04:05"`, `"\u0032006-01-02T15:04:05Z"`,
	}
	for name, valid := range fields {
		for _, text := range append(valid, "null", " null\n") {
			assert.True(t, checkDecode(t, typ, []byte(`{"`+name+`":`+text+`}`)), "%s: %q is left to the library", name, text)
			for n := range text {
				checkDecode(t, typ, []byte(`{"`+name+`":`+text[:n]))
				checkDecode(t, typ, []byte(`{"`+name+`":`+text[:n]+`}`))
			}
			for _, other := range []string{text + "x", text + "0", text + ",", "x" + text} {
				checkDecode(t, typ, []byte(`{"`+name+`":`+other+`}`))
			}
		}
		texts = append(texts, valid[0])
	}
	for name := range fields {
		for _, text := range texts {
			checkDecode(t, typ, []byte(`{"`+name+`":`+text+`}`))
		}
	}
}

func TestPlan_TextsOfListsAndObjects(t *testing.T) {
	typ := reflect.TypeFor[Lists]()
	for text, decoded := range map[string]bool{
		"[]": true, "[ ]": true, "[1]": true, "[ 1 , 2 ,3]": true,
		"[,]": false, "[1,]": false, "[1 2]": false, "[1}": false, "[1,,2]": false, "[[1]]": false, "[\v1]": false,
		"[": false, "]": false,
	} {
		assert.Equal(t, decoded, checkDecode(t, typ, []byte(`{"ints":`+text+`}`)), text)
	}
	for text, decoded := range map[string]bool{
		"{}": true, "{ }": true, `{"a":1}`: true, ` { "a" : 1 , "\u0062\n" : 2 } `: true, `{"":1}`: true,
		`{ "größe" : 1 }`: true, `{"a\u0062\\":1}`: true,
		"{,}": false, `{"a":1,}`: false, `{"a"1}`: false, `{"a":}`: false, `{a:1}`: false, `{"a":1,"a":2}`: false,
		`{"a":1,"\u0061":2}`: false, `{1:1}`: false,
		`{null:1}`: false, `{"a":1]`: false, `{"a"::1}`: false, "{\"a\tb\":1}": false, `{"a":1`: false, `{"a`: false,
	} {
		assert.Equal(t, decoded, checkDecode(t, typ, []byte(`{"map":`+text+`}`)), text)
	}
}

// TestPlan_AppendsUnusualValues has what random values seldom are.
func TestPlan_AppendsUnusualValues(t *testing.T) {
	check := func(planned bool, v Scalars) {
		t.Helper()
		assert.Equal(t, planned, checkAppend(t, reflect.ValueOf(&v)), "%+v", v)
	}
	for _, text := range []string{"<>&'/\u2028\x7f", "ü€😀", "\ufffd", "\x00\b\f\n\r\t\x1f\"\\"} {
		check(true, Scalars{String: text})
	}
	for c := range 256 {
		text := string([]byte{byte(c)})
		names := Names{text, "aaaaaaaa" + text + "aaaaaaaaa", strings.Repeat("b", c%20) + text}
		checkAppend(t, reflect.ValueOf(&Named{Names: names, Ages: Ages{Room(text): 1}}))
	}
	for _, f := range []float64{
		math.Copysign(0, -1), 1e20, 1e21, -1e21, 1e-6, 9.9e-7, -1e-9, 1e-10, 1e-100, math.MaxFloat64, math.SmallestNonzeroFloat64,
		0.1, 1 << 53, 3.4e38,
	} {
		check(true, Scalars{Float64: f})
		check(math.Abs(f) < math.MaxFloat64, Scalars{Float32: float32(f)})
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		check(false, Scalars{Float64: f})
	}
	for _, data := range [][]byte{nil, {}, {0}, {1, 2}, {0xff, 0xfe, 0xfd}, []byte(strings.Repeat("x", 100))} {
		check(true, Scalars{Bytes: data})
	}
	zone := func(seconds int) *time.Location { return time.FixedZone("", seconds) }
	for _, at := range []time.Time{
		{}, time.Unix(0, 1).UTC(), time.Unix(1e9, 120e6).In(zone(5*3600 + 1800)), time.Unix(1e9, 0).In(zone(-(23*3600 + 59*60))),
	} {
		check(true, Scalars{Time: at})
	}
	for _, at := range []time.Time{
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(0, 0).In(zone(24 * 3600)), time.Unix(0, 0).In(zone(100 * 3600)),
	} {
		check(false, Scalars{Time: at})
	}
}
