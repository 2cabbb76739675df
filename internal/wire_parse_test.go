package internal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/internal/wire"
)

// reference implements Parse with encoding/json. It returns false if the envelope must be rejected.
func reference(data []byte) (wire.Envelope, bool) {
	if !utf8.Valid(data) || !json.Valid(data) || depth(data) > wire.MaxDepth {
		return wire.Envelope{}, false
	}
	root, ok := members(data)
	if !ok || len(root["type"]) != 1 || len(root["meta"]) > 1 || len(root["payload"]) > 1 {
		return wire.Envelope{}, false
	}
	var found wire.Envelope
	if found.Type, ok = name(root["type"][0]); !ok || len(found.Type) == 0 {
		return wire.Envelope{}, false
	}
	if len(root["payload"]) == 1 {
		found.Payload = root["payload"][0]
	}
	if len(root["meta"]) == 0 {
		return found, true
	}
	meta, ok := members(root["meta"][0])
	if !ok {
		return wire.Envelope{}, false
	}
	found.Meta, ok = referenceMeta(meta)
	return found, ok
}

func referenceMeta(meta map[string][]json.RawMessage) (found wire.Meta, ok bool) {
	for _, key := range []string{"correlationId", "timeoutMs", "ack", "credit"} {
		values := meta[key]
		if len(values) > 1 {
			return found, false
		}
		if len(values) == 0 {
			continue
		}
		ok := false
		switch value := string(values[0]); key {
		case "correlationId":
			found.CorrelationID, ok = name(values[0])
		case "timeoutMs":
			found.TimeoutMs, ok = integer(value, 1)
		case "credit":
			found.Credit, ok = integer(value, 0)
			found.HasCredit = ok
		case "ack":
			found.Ack, ok = value == "true", value == "true" || value == "false"
		}
		if !ok {
			return found, false
		}
	}
	return found, true
}

func integer(value string, minimum int64) (int64, bool) {
	n, err := strconv.ParseUint(value, 10, 53)
	return int64(n), err == nil && int64(n) >= minimum
}

// sameMeta compares the exported fields.
func sameMeta(t *testing.T, want, got wire.Meta, data []byte) {
	t.Helper()
	require.Equal(t, string(want.CorrelationID), string(got.CorrelationID), "%.300q", data)
	require.Equal(t, want.TimeoutMs, got.TimeoutMs, "%.300q", data)
	require.Equal(t, want.Credit, got.Credit, "%.300q", data)
	require.Equal(t, want.HasCredit, got.HasCredit, "%.300q", data)
	require.Equal(t, want.Ack, got.Ack, "%.300q", data)
}

// members returns the values of each key of an object.
func members(data []byte) (map[string][]json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	found := map[string][]json.RawMessage{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		found[key.(string)] = append(found[key.(string)], value)
	}
	return found, true
}

func name(value json.RawMessage) ([]byte, bool) {
	var s *string
	if json.Unmarshal(value, &s) != nil || s == nil || len(*s) > wire.MaxNameBytes {
		return nil, false
	}
	return []byte(*s), true
}

func depth(data []byte) (deepest int) {
	d := json.NewDecoder(bytes.NewReader(data))
	level := 0
	for {
		token, err := d.Token()
		if err == io.EOF || err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			level++
			deepest = max(deepest, level)
		case json.Delim('}'), json.Delim(']'):
			level--
		}
	}
}

// wireCheck compares Parse, ParseHead and ParseHeadPrefix with the reference for any input.
func wireCheck(t *testing.T, data []byte) {
	t.Helper()
	want, ok := reference(data)
	got, err := wire.Parse(data)
	require.Equal(t, ok, err == nil, "%.300q: %v", data, err)
	head, headErr := wire.ParseHead(data)
	if headErr == nil && utf8.Valid(data) {
		checkRest(t, head, data)
	}
	head.FindMeta(data)
	for n := 0; n < len(data); n += 1 + len(data)/100 {
		part, partErr := wire.ParseHeadPrefix(data[:n])
		if !ok {
			continue
		}
		if partErr == nil {
			require.Equal(t, string(want.Type), string(part.Type), "%.300q prefix of %d bytes", data, n)
		} else {
			require.Nil(t, part.Type, "%.300q prefix of %d bytes", data, n)
		}
		if len(part.CorrelationID) > 0 {
			require.Equal(t, string(want.CorrelationID), string(part.CorrelationID), "%.300q prefix of %d bytes", data, n)
		}
		if part.TimeoutMs > 0 {
			require.Equal(t, want.TimeoutMs, part.TimeoutMs, "%.300q prefix of %d bytes", data, n)
		}
	}
	if !ok {
		return
	}
	require.NoError(t, headErr, "%.300q", data)
	require.Equal(t, string(want.Type), string(got.Type), "%.300q", data)
	sameMeta(t, want.Meta, got.Meta, data)
	require.Equal(t, string(want.Payload), string(got.Payload), "%.300q", data)
	require.Equal(t, want.Payload == nil, got.Payload == nil, "%.300q", data)
	require.Equal(t, string(want.Type), string(head.Type), "%.300q", data)
	sameMeta(t, want.Meta, head.Meta, data)
}

// checkRest checks that an envelope whose head is known is parsed as if it were not.
func checkRest(t *testing.T, head wire.Head, data []byte) {
	t.Helper()
	want, wantErr := wire.ParseText(data)
	got, err := head.Parse(data)
	require.Equal(t, text(wantErr), text(err), "%.300q", data)
	require.Equal(t, want, got, "%.300q", data)
	if payload, ok := head.PayloadIfValid(data); ok && json.Valid(payload) {
		require.NoError(t, err, "%.300q", data)
		require.Equal(t, string(payload), string(got.Payload), "%.300q", data)
	}
	head.FindMeta(data)
	got, err = head.Parse(data)
	require.Equal(t, text(wantErr), text(err), "%.300q after FindMeta", data)
	require.Equal(t, want, got, "%.300q after FindMeta", data)
}

func seeds() []string {
	long := strings.Repeat("x", 600)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	return []string{
		``, ` `, `{}`, `[]`, `null`, `{`, `{"`, `{"type"`, `{"type":`, `{"type":"A"`, `{"type":"A"}`, `{"type":"A"} `, `{"type":"A"}x`,
		`{"type":""}`, `{"type":7}`, `{"type":null}`, `{"Type":"A"}`, `{"type":"A","type":"B"}`, `{"typ\u0065":"A"}`, `{"type":"\u0041"}`,
		`{"type":"A","meta":{"correlationId":"c"}}`, `{"type":"A","meta":{"correlationId":"c","correlationId":"d"}}`,
		`{"type":"A","meta":{"x":{"correlationId":"d"},"correlationId":"c"}}`, `{"type":"A","meta":null}`, `{"type":"A","meta":[]}`,
		`{"type":"A","meta":{"correlationId":7}}`, `{"type":"A","meta":{"correlationId":""}}`, `{"type":"A","meta":{}}`,
		`{"payload":{"type":"B"},"type":"A"}`, `{"payload":"\",\"type\":\"B","type":"A","meta":{"correlationId":"c"}}`,
		`{"payload":{"a":"` + long + `"},"type":"A","meta":{"correlationId":"c"}}`,
		`{"payload":{"a":"` + long + `"},"meta":{"correlationId":"c"},"type":"A"}`,
		`{"type":"A","payload":{"a":"` + long + `"},"meta":{"correlationId":"c"}}`,
		`{"type":"A","payload":{"a":"` + long + `"}}`, `{"type":"A","x":1,"y":[true,false,null],"payload":-0.5e+7}`,
		`{"type":"A","payload":"` + long + `\\","meta":{"correlationId":"c"}}`, `{"payload":1,"type":"A"}`, `{"payload":[],"type":"A"}`,
		`{"meta":{"correlationId":"c"},"type":"A","payload":null}`, `{"meta":{"correlationId":"c"},"meta":{},"type":"A"}`,
		`{"type":"A","payload":01}`, `{"type":"A","payload":1.}`, `{"type":"A","payload":-}`, `{"type":"A","payload":1e}`, `{"type":"A","payload":tru}`,
		`{"type":"A","payload":"\x"}`, `{"type":"A","payload":"\u12g4"}`, `{"type":"A","payload":"\ud800"}`, "{\"type\":\"A\",\"payload\":\"\x01\"}",
		"{\"type\":\"A\",\"payload\":\"\xff\"}", "{\"type\":\"\xff\"}", `{"type":"A","payload":[1,]}`, `{"type":"A",}`, `{"type":"A","payload":{"a"}}`,
		`{"type":"A","payload":` + deep(63) + `}`, `{"type":"A","payload":` + deep(64) + `}`, `{"type":"A","meta":{"x":` + deep(62) + `}}`, `{"type":"A","meta":{"x":` + deep(63) + `}}`,
		`{"type":"` + strings.Repeat("T", 128) + `"}`, `{"type":"` + strings.Repeat("T", 129) + `"}`, `{"type":"` + strings.Repeat(`\u0041`, 128) + `"}`,
		"\t{\n\"type\" : \"A\" ,\r\"meta\" : { \"correlationId\" : \"c\" } , \"payload\" : [ 1 , 2 ] }\n",
		`{"type":"A","meta":{},"payload":` + deep(63) + `}`, `{"type":"A","meta":{},"payload":` + deep(64) + `}`, `{"meta":{},"type":"A","payload" : {"a":1} } `,
		`{"type":"A","meta":{},"payload":{"a":1},"payload":{}}`, `{"type":"A","meta":{},"payload":{},"x":{}}`, `{"type":"A","meta":{},"payload":1}}`,
		`{"type":"A","meta":{},"payload":}`, `{"type":"A","meta":{},"payload":"}`, `{"type":"A","meta":{},"p\u0061yload":"}"}`, `{"type":"A","meta":{},"payload":1`,
		`{"type":"A","payload":{"a":[{},[],{"b":[[]]}]}}`, `{"payload":{},"type":"A","meta":{"correlationId":"é\n"}}`, "\ufeff{}",
		`{"type":"A","meta":{"timeoutMs":1,"ack":true,"credit":0,"correlationId":"c"}}`, `{"type":"A","meta":{"timeoutMs":0}}`, `{"type":"A","meta":{"timeoutMs":-1}}`,
		`{"type":"A","meta":{"timeoutMs":1.5}}`, `{"type":"A","meta":{"timeoutMs":1e3}}`, `{"type":"A","meta":{"timeoutMs":"1"}}`, `{"type":"A","meta":{"timeoutMs":null}}`,
		`{"type":"A","meta":{"timeoutMs":9007199254740991}}`, `{"type":"A","meta":{"timeoutMs":9007199254740992}}`, `{"type":"A","meta":{"timeoutMs":99999999999999999999999}}`,
		`{"type":"A","meta":{"timeoutMs":1,"timeoutMs":2}}`, `{"type":"A","meta":{"ack":1}}`, `{"type":"A","meta":{"ack":null}}`, `{"type":"A","meta":{"ack":{}}}`,
		`{"type":"A","meta":{"credit":-0}}`, `{"type":"A","meta":{"credit":[1]}}`, `{"type":"A","meta":{"credit":01}}`, `{"type":"A","meta":{"ack":false,"ack":true}}`,
		`{"type":"A","payload":{"a":"` + long + `"},"meta":{"ack":true,"x":"` + long + `","timeoutMs":5}}`,
		`{"type":"A","meta":{"timestamp":01,"ack":true}}`, `{"type":"A","meta":{"x":12"y"}}`, `{"type":"A","meta":{"x":1]},"payload":1}`, `{"type":"A","meta":{"x":[1}]},"payload":1}`,
		`{"type":"A","meta":{},"type":"B","payload":1}`, `{"type":"A","meta":{},"meta":{}}`, `{"type":"A","id":1,"meta":{"ack":true},"payload":1}`, `{"meta":{"x":1},"x":01,"type":"A"}`,
		`{"type":"A","meta":{"ack":true,"x":tru}}`, `{"type":"A","meta":{},"payload":1,"payload":2}`, `{"type":"A","meta":{}}}`, `{"type":"A","meta":{},}`, `{"type":"A","meta":{}`,
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, seed := range seeds() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4<<10 {
			t.Skip("too long: wireCheck tries many prefixes")
		}
		wireCheck(t, data)
	})
}

// FuzzHeadParse checks that an envelope is parsed alike with and without its head.
func FuzzHeadParse(f *testing.F) {
	for _, seed := range seeds() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if head, err := wire.ParseHead(data); err == nil && utf8.Valid(data) {
			checkRest(t, head, data)
		}
	})
}

// TestParse_MatchesReferenceOnRandomEnvelopes checks valid envelopes with members in random order, and
// the same envelopes with one byte changed.
func TestParse_MatchesReferenceOnRandomEnvelopes(t *testing.T) {
	g := &generator{rand.New(rand.NewPCG(1, 2))}
	for range testscale.Tiers(400, 1000, 3000) {
		data := []byte(g.envelope())
		_, ok := reference(data)
		require.True(t, ok, "%.300s", data)
		wireCheck(t, data)
		data[g.IntN(len(data))] = "\"\\{}[]:,x \x01\xff"[g.IntN(12)]
		wireCheck(t, data)
	}
}

type generator struct{ *rand.Rand }

func (g *generator) envelope() string {
	all := []string{g.member("type", g.quote("SAY"))}
	for _, m := range []string{g.member("meta", g.meta()), g.member("payload", g.value(4)), g.member("extra", g.value(2))} {
		if g.IntN(5) > 0 {
			all = append(all, m)
		}
	}
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return g.space() + "{" + strings.Join(all, ",") + "}" + g.space()
}

func (g *generator) meta() string {
	all := []string{
		g.member("timestamp", "1730000000000"), g.member("correlationId", g.quote("c\"1\\")), g.member("x", g.value(2)),
		g.member("timeoutMs", strconv.Itoa(1+g.IntN(1<<30))), g.member("ack", strconv.FormatBool(g.IntN(2) == 0)), g.member("credit", strconv.Itoa(g.IntN(1000))),
	}
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return "{" + strings.Join(all[:g.IntN(len(all)+1)], ",") + "}"
}

func (g *generator) member(key, value string) string {
	return g.space() + g.quote(key) + g.space() + ":" + g.space() + value + g.space()
}

func (g *generator) value(depth int) string {
	switch g.IntN(8) {
	case 0:
		return []string{"true", "false", "null", "0", "-1.5e+3", "1234567890"}[g.IntN(6)]
	case 1, 2, 3:
		return g.quote(strings.Repeat([]string{"x", `\`, `"`, "é", "{}", `","type":"B`, "\n"}[g.IntN(7)], g.IntN(300)))
	default:
		if depth == 0 {
			return "[]"
		}
		var parts []string
		if g.IntN(2) == 0 {
			for range g.IntN(4) {
				parts = append(parts, g.space()+g.value(depth-1)+g.space())
			}
			return "[" + strings.Join(parts, ",") + "]"
		}
		for range g.IntN(4) {
			parts = append(parts, g.member([]string{"a", "type", "meta", "correlationId", `\`}[g.IntN(5)], g.value(depth-1)))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
}

func (g *generator) space() string {
	return strings.Repeat([]string{"", "", " ", "\n\t\r "}[g.IntN(4)], 1)
}

// quote returns a JSON string, sometimes with escape sequences for plain letters.
func (g *generator) quote(s string) string {
	quoted, _ := json.Marshal(s)
	if g.IntN(4) > 0 {
		return string(quoted)
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r < 0x80 && g.IntN(2) == 0 || r < ' ' || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func TestErrors_TextForTheClient(t *testing.T) {
	for _, tt := range []struct{ frame, head, whole string }{
		{``, "message is empty", "message is empty"},
		{`x`, "message must be a JSON object", "message must be a JSON object"},
		{`{"type":7,"meta":{"correlationId":"c"}}`, "type must be a string of 1 to 128 bytes", "type must be a string of 1 to 128 bytes"},
		{`{"meta":{"correlationId":"c"}}`, "type is missing", "type is missing"},
		{`{"type":"A","meta":7}`, "meta must be an object", "meta must be an object"},
		{`{"type":"A","meta":{"correlationId":7}}`, "correlationId must be a string of at most 128 bytes", "correlationId must be a string of at most 128 bytes"},
		{`{"type":"A","meta":{"correlationId":"c"}`, "", "message ends too early"},
		{`{"type":"A","meta":{"correlationId":"c"}}?`, "", "message is not valid JSON: unexpected character at byte 41"},
		{`{"type"?`, "message is not valid JSON: unexpected character at byte 7", "message is not valid JSON: unexpected character at byte 7"},
	} {
		_, err := wire.ParseHead([]byte(tt.frame))
		assert.Equal(t, tt.head, text(err), "%s", tt.frame)
		_, err = wire.Parse([]byte(tt.frame))
		assert.Equal(t, tt.whole, text(err), "%s", tt.frame)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseHead_ReturnsValidNameWithInvalidOne(t *testing.T) {
	for _, frame := range []string{
		`{"type":7,"meta":{"correlationId":"c"}}`,
		`{"meta":{"correlationId":"c"},"type":[]}`,
		`{"meta":{"correlationId":"c"}}`,
		`{"type":"","payload":{},"meta":{"correlationId":"c"}}`,
		`{"type":{},"payload":"` + strings.Repeat("x", 1000) + `","meta":{"correlationId":"c"}}`,
	} {
		head, err := wire.ParseHead([]byte(frame))
		require.Error(t, err)
		assert.Equal(t, "c", string(head.CorrelationID), "%s", frame)
	}
	for _, frame := range []string{`{"type":"A","meta":null}`, `{"meta":{"correlationId":7},"type":"A"}`} {
		head, err := wire.ParseHead([]byte(frame))
		require.Error(t, err)
		assert.Equal(t, "A", string(head.Type), "%s", frame)
	}
}

func TestParse_DoesNotAllocate(t *testing.T) {
	for name, frame := range frames() {
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			head, err := wire.ParseHead(frame)
			if err != nil || string(head.Type) != "SAY" {
				t.Fatal(err)
			}
			head.FindMeta(frame)
		}), "head of %s", name)
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := wire.Parse(frame); err != nil {
				t.Fatal(err)
			}
		}), "whole of %s", name)
	}
}

// frames returns envelopes of several sizes, with the members in every order.
func frames() map[string][]byte {
	items, _ := json.Marshal(map[string]any{"items": slice(220)})
	long, _ := json.Marshal(map[string]any{"text": strings.Repeat("lorem ipsum ", 1350)})
	small, _ := json.Marshal(map[string]any{"room": "general", "text": strings.Repeat("x", 60)})
	all := map[string][]byte{}
	for size, payload := range map[string][]byte{"200B": small, "16kB of items": items, "16kB of text": long} {
		m := [3]string{`"type":"SAY"`, `"meta":{"timestamp":1730000000000,"correlationId":"0d2b9a0e-6f6d-4f0e-9f57-5bd6d3a3d6a5"}`, `"payload":` + string(payload)}
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {0, 2}} {
			var parts, names []string
			for _, i := range order {
				parts, names = append(parts, m[i]), append(names, [3]string{"type", "meta", "payload"}[i])
			}
			all[size+"/"+strings.Join(names, ",")] = []byte("{" + strings.Join(parts, ",") + "}")
		}
	}
	return all
}

func slice(n int) []map[string]any {
	var items []map[string]any
	for i := range n {
		items = append(items, map[string]any{"id": i, "name": fmt.Sprint("item ", i), "price": 12.5, "tags": []string{"a", "b"}})
	}
	return items
}

func TestHead_PayloadIfValid(t *testing.T) {
	deep := strings.Repeat("[", wire.MaxDepth-1) + strings.Repeat("]", wire.MaxDepth-1)
	for data, want := range map[string]string{
		`{"type":"A","meta":{},"payload":{"a":1}}`:             `{"a":1}`,
		"{\"meta\":{},\"type\":\"A\" , \"payload\" : 1 }\n":    `1`,
		`{"type":"A","meta":{},"payload":{},"x":1}`:            `{},"x":1`, // no JSON value, so Parse decides
		`{"type":"A","meta":{},"payload":` + deep + `}`:        deep,
		`{"type":"A","meta":{},"payload":[` + deep + `]}`:      "",
		`{"type":"A","payload":{}}`:                            "",
		`{"type":"A","payload":{},"meta":{}}`:                  "",
		`{"type":"A","meta":{}}`:                               "",
		`{"type":"A","meta":{},"x":{},"payload":{}}`:           "",
		`{"type":"A","x":1,"meta":{},"payload":{}}`:            "",
		`{"type":"A","meta":{"correlationId":"c"},"payload":}`: "",
	} {
		head, err := wire.ParseHead([]byte(data))
		require.NoError(t, err, data)
		payload, ok := head.PayloadIfValid([]byte(data))
		assert.Equal(t, want != "", ok, data)
		if ok {
			assert.Equal(t, want, string(payload), data)
		}
	}
}

// TestParseHead_UsualHeadsAreLikeOthers compares heads as clients write them with the same ones after a
// space, which are read member by member.
func TestParseHead_UsualHeadsAreLikeOthers(t *testing.T) {
	ids := []string{
		``, `,"correlationId":"c-1"`, `,"correlationId":""`, `,"correlationId":"é"`, `,"correlationId":"\u0041"`, `,"correlationId":7`,
		`,"correlationId":"` + strings.Repeat("c", wire.MaxNameBytes) + `"`, `,"correlationId":"` + strings.Repeat("c", wire.MaxNameBytes+1) + `"`,
		`,"correlationId":"c","timeoutMs":5`, `,"correlationId":"c`, `,"correlationId":"a","correlationId":"b"`, `,`,
	}
	names := []string{`"A"`, `""`, `"$ws:x"`, `"é"`, `"a\"b"`, "\"a\tb\"", `7`, `"` + strings.Repeat("n", wire.MaxNameBytes+1) + `"`}
	for _, number := range []string{"1730000000000", "0", "012", "", "-1", "1.5", "1e3", "12x", "12 "} {
		for _, id := range ids {
			for _, typ := range names {
				for _, end := range []string{`},"payload":{"a":1}}`, `}}`, `} , "payload": 1 }`, `},"meta":{}}`, `},"payload":1,"type":"B"}`, `}`, ``, ` }}`} {
					usual := `{"type":` + typ + `,"meta":{"timestamp":` + number + id + end
					checkSameHead(t, usual)
				}
			}
		}
	}
}

func checkSameHead(t *testing.T, usual string) {
	t.Helper()
	other := "{ " + usual[1:]
	head, err := wire.ParseHead([]byte(usual))
	want, wantErr := wire.ParseHead([]byte(other))
	require.Equal(t, wantErr == nil, err == nil, usual)
	require.Equal(t, string(want.Type), string(head.Type), usual)
	if err != nil {
		return
	}
	head.FindMeta([]byte(usual))
	want.FindMeta([]byte(other))
	require.Equal(t, string(want.CorrelationID), string(head.CorrelationID), usual)
	require.Equal(t, want.TimeoutMs, head.TimeoutMs, usual)
	payload, ok := head.PayloadIfValid([]byte(usual))
	wantPayload, wantOK := want.PayloadIfValid([]byte(other))
	require.Equal(t, wantOK, ok, usual)
	require.Equal(t, string(wantPayload), string(payload), usual)
	_, err = head.Parse([]byte(usual))
	_, wantErr = want.Parse([]byte(other))
	require.Equal(t, wantErr == nil, err == nil, usual)
}
