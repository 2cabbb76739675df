package envelope

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// Bounds on what the error of a client may contain, which chooses everything in it.
const (
	maxClientCodeBytes    = 64
	maxClientMessageBytes = 1024
	maxClientDetailsBytes = 4096
	maxClientRetryAfter   = 365 * 24 * time.Hour
)

// A clientError is what a client sends as the payload of an error.
type clientError struct {
	Code         string       `json:"code"`
	Message      string       `json:"message"`
	Details      jsonv2.Value `json:"details"`
	RetryAfterMs jsonv2.Value `json:"retryAfterMs"`
}

// DecodeError decodes the payload of the error with which a client answers a call; it is nil if there is
// none. A long message is cut, and long details are left out.
func DecodeError(payload []byte) (*errors.Error, error) {
	if payload == nil {
		return nil, errors.InvalidField("payload", "is missing")
	}
	var p clientError
	if err := UnmarshalJSON(payload, &p); err != nil {
		return nil, err
	}
	if !isValidCode(p.Code) {
		return nil, errors.InvalidField("code", "must have 1 to 64 letters, digits and underscores")
	}
	e := &errors.Error{Code: errors.Code(p.Code), Message: cutText(p.Message, maxClientMessageBytes), RetryAfter: retryAfter(string(p.RetryAfterMs))}
	if len(p.Details) > 0 && len(p.Details) <= maxClientDetailsBytes {
		var details map[string]any
		if err := UnmarshalJSON(p.Details, &details); err != nil {
			return nil, err
		}
		if details != nil {
			e.Details = details
		}
	}
	return e, nil
}

// isValidCode reports whether a client may answer with the code.
func isValidCode(code string) bool {
	invalid := func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	}
	return code != "" && len(code) <= maxClientCodeBytes && strings.IndexFunc(code, invalid) < 0
}

// retryAfter returns the delay of a client's error, and 0 if it is absent or out of range.
func retryAfter(ms string) time.Duration {
	if ms == "null" {
		return errors.Never
	}
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n < 0 || n > int64(maxClientRetryAfter/time.Millisecond) {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

// cutText returns a prefix of text with at most limit bytes of whole characters. It copies the
// prefix, so that the rest can be freed.
func cutText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.Clone(text[:limit])
}
