package internal_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
)

func TestCloseReason_FitsIntoCloseFrame(t *testing.T) {
	for _, tt := range []struct {
		name    string
		payload protocol.ErrorPayload
		want    string
	}{
		{"code alone", protocol.ErrorPayload{Code: "INTERNAL"}, `{"code":"INTERNAL"}`},
		{"no delay", protocol.ErrorPayload{Code: "UNAUTHENTICATED", Message: "log in first"}, `{"code":"UNAUTHENTICATED","message":"log in first"}`},
		{"delay", protocol.ErrorPayload{Code: "UNAVAILABLE", Message: "server is restarting", Retryable: true, RetryAfterMs: jsonv2.Value("812")}, `{"code":"UNAVAILABLE","retryAfterMs":812,"message":"server is restarting"}`},
		{"never", protocol.ErrorPayload{Code: "RESOURCE_EXHAUSTED", Message: "message is too big", RetryAfterMs: jsonv2.Value("null")}, `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":null,"message":"message is too big"}`},
		{"details are left out", protocol.ErrorPayload{Code: "RESOURCE_EXHAUSTED", Details: protocol.LimitDetails{Kind: "rate"}}, `{"code":"RESOURCE_EXHAUSTED"}`},
		{"long message", protocol.ErrorPayload{Code: "ABORTED", Message: strings.Repeat("a", 200)}, `{"code":"ABORTED","message":"` + strings.Repeat("a", 92) + `"}`},
		{"cut at a rune", protocol.ErrorPayload{Code: "ABORTED", Message: strings.Repeat("é", 200)}, `{"code":"ABORTED","message":"` + strings.Repeat("é", 46) + `"}`},
		{"cut at an escape", protocol.ErrorPayload{Code: "ABORTED", Message: strings.Repeat(`"`, 200)}, `{"code":"ABORTED","message":"` + strings.Repeat(`\"`, 46) + `"}`},
		{"control characters", protocol.ErrorPayload{Code: "ABORTED", Message: "a\x00\nb"}, `{"code":"ABORTED","message":"a\u0000\nb"}`},
		{"invalid UTF-8", protocol.ErrorPayload{Code: "ABORTED", Message: "a\xffb"}, `{"code":"ABORTED","message":"a` + "\ufffd" + `b"}`},
		{"long code", protocol.ErrorPayload{Code: errors.Code(strings.Repeat("X", 113)), Message: "m"}, `{"code":"INTERNAL","message":"m"}`},
		{"longest code", protocol.ErrorPayload{Code: errors.Code(strings.Repeat("X", 112)), Message: "m"}, `{"code":"` + strings.Repeat("X", 112) + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, wire.CloseReason(&tt.payload))
		})
	}
}

// FuzzCloseReason checks that every reason is valid JSON that fits, with the code, the delay and
// a prefix of the message that is as long as possible.
func FuzzCloseReason(f *testing.F) {
	f.Add("UNAVAILABLE", "server is restarting", int64(812))
	f.Add("A\"B", strings.Repeat("\x00", 200), int64(-1))
	f.Add(strings.Repeat("é", 60), "\xff\\\u2028", int64(1<<62))
	f.Add("", strings.Repeat("\U0001f600", 40), int64(0))
	f.Fuzz(func(t *testing.T, code, message string, delay int64) {
		payload := protocol.ErrorPayload{Code: errors.Code(code), Message: message}
		switch {
		case delay < 0:
			payload.RetryAfterMs = jsonv2.Value("null")
		case delay > 0:
			payload.RetryAfterMs, _ = json.Marshal(delay)
		}
		text := wire.CloseReason(&payload)
		require.LessOrEqual(t, len(text), wire.MaxReasonBytes)
		require.True(t, utf8.ValidString(text))
		var got struct {
			Code         string          `json:"code"`
			RetryAfterMs json.RawMessage `json:"retryAfterMs"`
			Message      string          `json:"message"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &got), "%q", text)
		assert.Equal(t, string(payload.RetryAfterMs), string(got.RetryAfterMs), "%q", text)
		if valid := strings.ToValidUTF8(code, "\ufffd"); len(code) <= 8 && valid == code {
			assert.Equal(t, code, got.Code, "%q", text)
		}
		runes := string([]rune(message)) // each invalid byte becomes U+FFFD
		require.True(t, strings.HasPrefix(runes, got.Message), "%q", text)
		if next := []rune(runes[len(got.Message):]); len(next) > 0 {
			longer := payload
			longer.Message = got.Message + string(next[0])
			assert.Equal(t, text, wire.CloseReason(&longer), "one more rune does not fit")
			assert.Greater(t, len(text), wire.MaxReasonBytes-len(`,"message":""`)-len(`\u0000`), "%q", text)
		}
	})
}
