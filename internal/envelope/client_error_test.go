package envelope_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
)

func TestDecodeError_RejectsWhatIsNoError(t *testing.T) {
	for _, payload := range []string{
		``, `null`, `1`, `{`, `{}`, `{"code":""}`, `{"code":"A-B"}`, `{"code":"Ä"}`, `{"code":1}`,
		`{"code":"` + strings.Repeat("A", 65) + `"}`, `{"code":"A","details":1}`, `{"code":"A","message":1}`,
	} {
		_, err := envelope.DecodeError([]byte(payload))
		assert.Error(t, err, payload)
	}
	_, err := envelope.DecodeError(nil)
	assert.ErrorContains(t, err, "missing")
}

func TestDecodeError_BoundsWhatClientsChoose(t *testing.T) {
	for payload, want := range map[string]errors.Error{
		`{"code":"A"}`: {Code: "A"},
		`{"code":"` + strings.Repeat("A", 64) + `"}`:                             {Code: errors.Code(strings.Repeat("A", 64))},
		`{"code":"A","message":"` + strings.Repeat("m", 1025) + `"}`:             {Code: "A", Message: strings.Repeat("m", 1024)},
		`{"code":"A","message":"` + strings.Repeat("m", 1023) + `é"}`:            {Code: "A", Message: strings.Repeat("m", 1023)},
		`{"code":"A","details":{"a":1}}`:                                         {Code: "A", Details: map[string]any{"a": 1.0}},
		`{"code":"A","details":{"a":"` + strings.Repeat("d", 4096) + `"}}`:       {Code: "A"},
		`{"code":"A","retryAfterMs":1500}`:                                       {Code: "A", RetryAfter: 1500 * time.Millisecond},
		`{"code":"A","retryAfterMs":null}`:                                       {Code: "A", RetryAfter: errors.Never},
		`{"code":"A","retryAfterMs":-1}`:                                         {Code: "A"},
		`{"code":"A","retryAfterMs":"1"}`:                                        {Code: "A"},
		fmt.Sprintf(`{"code":"A","retryAfterMs":%d}`, int64(365*24*3600*1000)):   {Code: "A", RetryAfter: 365 * 24 * time.Hour},
		fmt.Sprintf(`{"code":"A","retryAfterMs":%d}`, int64(365*24*3600*1000+1)): {Code: "A"},
		`{"code":"A","retryAfterMs":18446744073709551616}`:                       {Code: "A"},
	} {
		e, err := envelope.DecodeError([]byte(payload))
		require.NoError(t, err, payload)
		assert.Equal(t, &want, e, payload)
	}
}

// FuzzDecodeError checks what a caller of a client relies on.
func FuzzDecodeError(f *testing.F) {
	f.Add([]byte(`{"code":"A","message":"é","details":{"a":[1]},"retryAfterMs":5}`))
	f.Add([]byte(`{"code":"A","retryAfterMs":null}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := envelope.DecodeError(payload)
		if err != nil {
			return
		}
		assert.NotEmpty(t, e.Code)
		assert.LessOrEqual(t, len(e.Code), 64)
		assert.LessOrEqual(t, len(e.Message), 1024)
		assert.True(t, utf8.ValidString(e.Message))
		assert.True(t, e.RetryAfter == errors.Never || e.RetryAfter >= 0)
	})
}
