package trace_test

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/errors"
)

// readAll returns the requests of a trace, and the errors of its invalid lines.
func readAll(t *testing.T, text string, format trace.Format) (records []trace.Record, invalid []string) {
	t.Helper()
	r, err := trace.NewReader(strings.NewReader(text), format)
	require.NoError(t, err)
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, invalid
		}
		if line, ok := errors.AsType[*trace.InvalidLine](err); ok {
			invalid = append(invalid, line.Error())
			continue
		}
		require.NoError(t, err)
		records = append(records, record)
	}
}

func micros(text string) int64 {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return at.UnixMicro()
}

func TestReader_CSVColumnsInAnyOrder(t *testing.T) {
	records, invalid := readAll(t, "\ufeffType,note, KEY ,Cost,time\r\n"+
		"SAY,x,ann,3,2026-09-01T18:00:00.25Z\r\n"+
		"\r\n"+
		`"S,A""Y",,bob,,2026-09-01T20:00:00+02:00`, trace.Auto)
	assert.Empty(t, invalid)
	assert.Equal(t, []trace.Record{
		{Line: 2, Micros: micros("2026-09-01T18:00:00.25Z"), Key: "ann", Type: "SAY", Cost: 3},
		{Line: 4, Micros: micros("2026-09-01T18:00:00Z"), Key: "bob", Type: `S,A"Y`, Cost: 1},
	}, records)
}

func TestReader_JSONObjects(t *testing.T) {
	records, invalid := readAll(t, "\n"+`{"time":"2026-09-01T18:00:00Z","key":"a\u0041","cost":0,"type":"SAY","more":[{}]}
{"key":42,"time":1.5}
{"key":"null","time":"2","type":null,"cost":null}`, trace.Auto)
	assert.Empty(t, invalid)
	assert.Equal(t, []trace.Record{
		{Line: 2, Micros: micros("2026-09-01T18:00:00Z"), Key: "aA", Type: "SAY", Cost: 0},
		{Line: 3, Micros: 1_500_000, Key: "42", Cost: 1},
		{Line: 4, Micros: 2_000_000, Key: "null", Cost: 1},
	}, records)
}

func TestReader_TimeFormats(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "12": 12e6, "1.5": 1_500_000, "0.0000019": 1, "1788285600": 1788285600e6, "1788285600.1234567": 1788285600123456,
		"1788285600123": 1788285600123000, "1788285600123.4567": 1788285600123456, "1788285600123456": 1788285600123456,
		"1788285600123456.9": 1788285600123456, "1788285600123456789": 1788285600123456, "99999999999": 99999999999e6,
		"100000000000": 100000000000e3, "99999999999999": 99999999999999e3, "100000000000000": 100000000000000,
		"99999999999999999": 99999999999999999, "100000000000000000": 100000000000000,
		"1970-01-01T00:00:00.000001Z": 1, "2026-09-01T18:00:00.123456789-07:00": micros("2026-09-02T01:00:00.123456Z"),
	} {
		records, invalid := readAll(t, "time,key\n "+text+" ,ann", trace.CSV)
		require.Empty(t, invalid)
		assert.Equal(t, want, records[0].Micros, text)
	}
}

func TestReader_ReportsInvalidLines(t *testing.T) {
	long := strings.Repeat("x", trace.MaxLineBytes)
	for _, c := range []struct{ name, head, line, want string }{
		{"no time", "time,key", ",ann", `time is ""; it must be in RFC 3339 format, such as 2026-09-01T18:00:00.5Z, or Unix seconds, such as 1788285600.5`},
		{"before 1970", "time,key", "1969-12-31T23:59:59.9999999Z,ann", `time is "1969-12-31T23:59:59.9999999Z"; it must not be before 1970`},
		{"space", "time,key", "2026-09-01 18:00:00,ann", `time is "2026-09-01 18:00:00"; it must be in RFC 3339 format`},
		{"exponent", "time,key", "1.7e9,ann", `time is "1.7e9"; it must be`},
		{"sign", "time,key", "+1,ann", `time is "+1"; it must be`},
		{"dot", "time,key", "1.,ann", `time is "1."; it must be`},
		{"no key", "time,key", "1,", "key is empty"},
		{"cost", "time,key,cost", "1,ann,-1", `cost is "-1"; it must be a whole number from 0 to 2^63-1`},
		{"fraction", "time,key,cost", "1,ann,1.5", `cost is "1.5"; it must be a whole number from 0 to 2^63-1`},
		{"too much", "time,key,cost", "1,ann,9223372036854775808", `cost is "9223372036854775808"; it must be`},
		{"fields", "time,key", "1,ann,2", "line has 3 fields; the first line names 2 columns"},
		{"open quote", "time,key", `1,"ann`, `column 7: extraneous or missing " in quoted-field (a quoted field must end on its line, and a quote in it must be doubled)`},
		{"bare quote", "time,key", `1,a"nn`, `column 4: bare " in non-quoted-field`},
		{"long", "time,key", long, "line is longer than 65536 bytes"},
		{"very long", "time,key", long + long + long, "line is longer than 65536 bytes"},
		{"not JSON", `{"time":1,"key":"ann"}`, `{"time":1,"key":"ann"`, `line is not an object such as {"time":"2026-09-01T18:00:00.5Z","key":"ann"}: `},
		{"array", `{"time":1,"key":"ann"}`, `[1,"ann"]`, `line is not an object such as `},
		{"twice", `{"time":1,"key":"ann"}`, `{"time":1,"key":"ann","time":2}`, `line is not an object such as `},
		{"bool", `{"time":1,"key":"ann"}`, `{"time":1,"key":true}`, "key is true; it must be a string or a number"},
		{"JSON without key", `{"time":1,"key":"ann"}`, `{"time":1}`, "key is empty"},
		{"JSON without time", `{"time":1,"key":"ann"}`, `{"key":"ann"}`, `time is "";`},
		{"JSON cost", `{"time":1,"key":"ann"}`, `{"time":1,"key":"ann","cost":2.0}`, `cost is "2.0";`},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := "1,bob" + strings.Repeat(",", strings.Count(c.head, ",")-1)
			if c.head[0] == '{' {
				after = `{"time":1,"key":"bob"}`
			}
			records, invalid := readAll(t, c.head+"\n\n"+c.line+"\n"+after, trace.Auto)
			if assert.Len(t, invalid, 1) {
				assert.Contains(t, invalid[0], "line 3: "+c.want)
			}
			last := records[len(records)-1]
			assert.Equal(t, "bob", last.Key)
			assert.Equal(t, int64(4), last.Line)
		})
	}
}

func TestNewReader_FailsWithoutColumnNames(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "the trace is empty",
		"\n \n":              "the trace is empty",
		"\ufeff\n1,ann":      `line 1: the first line must name the columns, such as time,key,cost,type; "time" is missing: ""`,
		"2026,ann\n":         `line 1: the first line must name the columns, such as time,key,cost,type; "time" is missing: "2026,ann"`,
		"\n\ntime;key\n":     `line 3: the first line must name the columns, such as time,key,cost,type; "time" is missing: "time;key"`,
		"time,user\n":        `line 1: the first line must name the columns, such as time,key,cost,type; "key" is missing: "time,user"`,
		"time,key,cost,Cost": `line 1: the first line names "cost" twice`,
		`time,"key`:          `line 1: column 10: extraneous or missing " in quoted-field (a quoted field must end on its line, and a quote in it must be doubled)`,
	} {
		_, err := trace.NewReader(strings.NewReader(text), trace.Auto)
		assert.EqualError(t, err, want)
	}
}

func TestReader_IgnoredReturnsUnknownColumns(t *testing.T) {
	r, err := trace.NewReader(strings.NewReader("time,costs,key,host\n"), trace.Auto)
	require.NoError(t, err)
	assert.Equal(t, []string{"costs", "host"}, r.Ignored())
}

func TestNewReader_ExplicitFormat(t *testing.T) {
	records, invalid := readAll(t, "time,key\n{\"time\":1,\"key\":\"ann\"}\n", trace.JSONLines)
	assert.Len(t, invalid, 1)
	assert.Len(t, records, 1)

	_, err := trace.NewReader(strings.NewReader(`{"time":1,"key":"ann"}`), trace.CSV)
	assert.ErrorContains(t, err, "line 1: ")
}

func TestReader_ErrorOfUnderlyingReaderIsFinal(t *testing.T) {
	broken := errors.New("broken")
	r, err := trace.NewReader(io.MultiReader(strings.NewReader("time,key\n1,ann\n2,b"), iotest.ErrReader(broken)), trace.Auto)
	require.NoError(t, err)
	_, err = r.Next()
	require.NoError(t, err)
	for range 2 {
		_, err = r.Next()
		assert.ErrorIs(t, err, broken)
	}
}

// Every line that is not blank is a request or an invalid line with its number, even if the
// underlying reader returns single bytes.
func FuzzReader(f *testing.F) {
	for _, text := range []string{
		"time,key,cost,type\n1,ann,1,SAY\n\n2,bob\n", "time,key\n1,\"a\nb\"\r\n3,c", `{"time":1,"key":"ann"}` + "\n{\n" + `{"time":"2026-09-01T18:00:00Z","key":1,"cost":"2"}`,
		"\ufefftime,key\n1,\xff\n", "\ufeff\n", "\ufeff {}", "key,time\n\"\n\"\n", "time,key\n1.000,a\n1e9,a\n99999999999999999999,a\n",
	} {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, slow bool) {
		in := io.Reader(strings.NewReader(string(text)))
		if slow {
			in = iotest.OneByteReader(in)
		}
		r, err := trace.NewReader(in, trace.Auto)
		if err != nil {
			return
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		var last, found int64
		for {
			record, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			found++
			line := record.Line
			if invalid, ok := errors.AsType[*trace.InvalidLine](err); ok {
				line = invalid.Line
				assert.NotEmpty(t, invalid.Err.Error())
			} else {
				require.NoError(t, err)
				assert.NotEmpty(t, record.Key)
				assert.GreaterOrEqual(t, record.Cost, int64(0))
			}
			require.Greater(t, line, last)
			require.NotEmpty(t, strings.TrimSpace(lines[line-1]))
			last = line
		}
		header := int64(1)
		if r.Line() > 0 && firstByte(lines) == '{' {
			header = 0
		}
		assert.Equal(t, int64(len(lines)), r.Line())
		assert.Equal(t, int64(len(lines)), header+found+r.Blank())
	})
}

func firstByte(lines []string) byte {
	for _, line := range lines {
		if strings.TrimSpace(line) != "" {
			return strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))[0]
		}
	}
	return 0
}

func TestReader_FirstLineTooLongIsOneInvalidLine(t *testing.T) {
	line := `{"time":1788285600,"key":"ann"}` + "\n"
	long := `{"time":1788285600,"key":"ann","agent":"` + strings.Repeat("x", trace.MaxLineBytes) + `"}` + "\n"
	r, err := trace.NewReader(strings.NewReader(long+line), trace.JSONLines)
	require.NoError(t, err)
	_, err = r.Next()
	invalid, ok := errors.AsType[*trace.InvalidLine](err)
	require.True(t, ok, "%v", err)
	assert.EqualValues(t, 1, invalid.Line)
	record, err := r.Next()
	require.NoError(t, err)
	assert.EqualValues(t, 2, record.Line)
}
