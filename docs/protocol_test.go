package docs_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/router/routertest"
)

var sample = regexp.MustCompile("(?ms)^```json\n(.*?)^```$")

func samples(t *testing.T) [][]byte {
	text, err := os.ReadFile("protocol.md")
	require.NoError(t, err)
	var found [][]byte
	for _, match := range sample.FindAllSubmatch(text, -1) {
		found = append(found, bytes.TrimSpace(match[1]))
	}
	require.Greater(t, len(found), 5)
	return found
}

func TestProtocol_SamplesAreValidEnvelopes(t *testing.T) {
	for _, text := range samples(t) {
		_, err := wire.Parse(text)
		require.NoError(t, err, "%s", text)
		var message struct {
			Type string          `json:"type"`
			Meta map[string]any  `json:"meta"`
			Data json.RawMessage `json:"data"`
			Load json.RawMessage `json:"payload"`
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&message), "%s", text)
		for key := range message.Meta {
			assert.Contains(t, []string{"timestamp", "correlationId", "ts", "timeoutMs", "ack", "credit", "traceparent", "tracestate", "topic", "offset"}, key, "%s", text)
		}
	}
}

// TestProtocol_TableHasAllCodes compares the table of section 4 with the codes, and with whether they are retryable.
func TestProtocol_TableHasAllCodes(t *testing.T) {
	text, err := os.ReadFile("protocol.md")
	require.NoError(t, err)
	_, section, _ := bytes.Cut(text, []byte("## 4. Errors"))
	section, _, _ = bytes.Cut(section, []byte("### Limits"))
	var codes []errors.Code
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (\\w+)").FindAllSubmatch(section, -1) {
		code := errors.Code(row[1])
		codes = append(codes, code)
		if code != errors.Internal {
			assert.Equal(t, string(row[2]) == "yes", (&errors.Error{Code: code}).Retryable(), code)
		}
	}
	assert.Equal(t, errors.Codes(), codes)
}

func TestProtocol_ErrorSamplesMatchTheCodes(t *testing.T) {
	found := 0
	for _, text := range samples(t) {
		var message struct {
			Type string `json:"type"`
			Meta struct {
				CorrelationID string `json:"correlationId"`
			} `json:"meta"`
			Payload json.RawMessage `json:"payload"`
		}
		require.NoError(t, json.Unmarshal(text, &message))
		if message.Type != "ERROR" && message.Type != "RPC_ERROR" {
			continue
		}
		found++
		var payload struct {
			Code         errors.Code     `json:"code"`
			Message      string          `json:"message"`
			Details      map[string]any  `json:"details"`
			Retryable    *bool           `json:"retryable"`
			RetryAfterMs json.RawMessage `json:"retryAfterMs"`
		}
		decoder := json.NewDecoder(bytes.NewReader(message.Payload))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&payload), "%s", text)
		assert.Equal(t, message.Type == "RPC_ERROR", message.Meta.CorrelationID != "", "%s", text)
		require.NotNil(t, payload.Retryable, "%s", text)
		e := errors.Error{Code: payload.Code}
		if string(payload.RetryAfterMs) == "null" {
			e.RetryAfter = errors.Never
		}
		assert.Equal(t, e.Retryable(), *payload.Retryable, "%s", text)
	}
	assert.GreaterOrEqual(t, found, 5)
}

// TestProtocol_WelcomeSamplesAreComplete decodes the samples as a client does that knows every member.
func TestProtocol_WelcomeSamplesAreComplete(t *testing.T) {
	var all []byte
	for _, text := range samples(t) {
		var message struct {
			Type    string          `json:"type"`
			Payload json.RawMessage `json:"payload"`
		}
		require.NoError(t, json.Unmarshal(text, &message))
		if message.Type != protocol.TypeWelcome {
			continue
		}
		all = append(all, message.Payload...)
		var welcome routertest.Welcome
		decoder := json.NewDecoder(bytes.NewReader(message.Payload))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&welcome), "%s", text)
	}
	for field := range reflect.TypeFor[routertest.Welcome]().Fields() {
		assert.Contains(t, string(all), `"`+field.Tag.Get("json")+`"`)
	}
}

// TestProtocol_HasSampleOfEveryType looks for the types in the code of the router.
func TestProtocol_HasSampleOfEveryType(t *testing.T) {
	files, err := filepath.Glob("../router/*.go")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, file := range append(files, "../internal/protocol/names.go") {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range regexp.MustCompile(`"(\$ws:[a-z-]+|__[a-z_]+|ERROR|RPC_ERROR)"`).FindAllSubmatch(code, -1) {
			found[string(match[1])] = true
		}
	}
	require.Greater(t, len(found), 15)
	delete(found, protocol.TypeAnswer) // only ingress sees it
	all := bytes.Join(samples(t), nil)
	for typ := range found {
		assert.Contains(t, string(all), `{"type":"`+typ+`"`)
	}
}

var binarySample = regexp.MustCompile("(?ms)^```hex\n(.*?)^```$")

// TestProtocol_BinarySampleIsTheFirstSample decodes the bytes of the binary sample and compares them with the
// explanations beside them and with the same message in JSON.
func TestProtocol_BinarySampleIsTheFirstSample(t *testing.T) {
	text, err := os.ReadFile("protocol.md")
	require.NoError(t, err)
	match := binarySample.FindSubmatch(text)
	require.NotNil(t, match)
	var message []byte
	var explained string
	for line := range strings.Lines(string(match[1])) {
		digits, meaning, _ := strings.Cut(line, "|")
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		require.NoError(t, err)
		message = append(message, b...)
		explained += strings.TrimSpace(meaning)
	}
	got, err := wire.ParseBinary(message)
	require.NoError(t, err)
	head := string(message[2 : len(message)-len(got.Payload)])
	assert.Contains(t, explained, head)
	want := samples(t)[0]
	assert.JSONEq(t, string(want), head[:len(head)-1]+`,"payload":`+payloadAsJSON(t, got.Payload)+"}")
	again, err := cbor.New(nil).Marshal(map[string]string{"room": "go", "text": "hi"})
	require.NoError(t, err)
	assert.Equal(t, again, got.Payload, "the encoding is deterministic")
}

// payloadAsJSON converts CBOR to JSON.
func payloadAsJSON(t *testing.T, payload []byte) string {
	var v any
	require.NoError(t, cbor.New(nil).Unmarshal(payload, &v))
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

var closeReason = regexp.MustCompile("`(\\{\"code\":[^`]*)`")

// TestProtocol_CloseReasonsAreThoseOfTheServer encodes each reason of a close frame again.
func TestProtocol_CloseReasonsAreThoseOfTheServer(t *testing.T) {
	text, err := os.ReadFile("protocol.md")
	require.NoError(t, err)
	_, section, _ := bytes.Cut(text, []byte("## 5. Close codes"))
	section, _, _ = bytes.Cut(section, []byte("## 6."))
	found := closeReason.FindAllSubmatch(section, -1)
	require.GreaterOrEqual(t, len(found), 5)
	for _, match := range found {
		var reason struct {
			Code         errors.Code     `json:"code"`
			RetryAfterMs json.RawMessage `json:"retryAfterMs"`
			Message      string          `json:"message"`
		}
		decoder := json.NewDecoder(bytes.NewReader(match[1]))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&reason), "%s", match[1])
		payload := protocol.ErrorPayload{Code: reason.Code, Message: reason.Message, RetryAfterMs: jsonv2.Value(reason.RetryAfterMs)}
		assert.Equal(t, string(match[1]), wire.CloseReason(&payload))
	}
}
