package docs_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
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
			assert.Contains(t, []string{"timestamp", "correlationId", "ts", "timeoutMs", "ack", "credit"}, key, "%s", text)
		}
	}
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

// TestProtocol_WelcomeSampleIsComplete decodes the sample as a client does that knows every member.
func TestProtocol_WelcomeSampleIsComplete(t *testing.T) {
	found := 0
	for _, text := range samples(t) {
		var message struct {
			Type    string          `json:"type"`
			Payload json.RawMessage `json:"payload"`
		}
		require.NoError(t, json.Unmarshal(text, &message))
		if message.Type != wire.TypeWelcome {
			continue
		}
		found++
		var welcome routertest.Welcome
		decoder := json.NewDecoder(bytes.NewReader(message.Payload))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&welcome), "%s", text)
		for field := range reflect.ValueOf(welcome).Fields() {
			assert.Contains(t, string(message.Payload), `"`+field.Tag.Get("json")+`"`)
		}
	}
	assert.Equal(t, 1, found)
}

func TestProtocol_ListsAllCodes(t *testing.T) {
	text, err := os.ReadFile("protocol.md")
	require.NoError(t, err)
	for _, code := range []errors.Code{
		errors.Unauthenticated, errors.PermissionDenied, errors.InvalidArgument, errors.FailedPrecondition,
		errors.NotFound, errors.AlreadyExists, errors.Unimplemented, errors.Canceled, errors.DeadlineExceeded,
		errors.ResourceExhausted, errors.Unavailable, errors.Aborted, errors.Internal,
	} {
		assert.Contains(t, string(text), "| `"+string(code)+"` |")
	}
}
