package envelope

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// Decode decodes a payload into the value that v points to. codec is nil for JSON, the only
// format for which rejectUnknown counts. The decoder may panic.
func Decode(codec Codec, payload []byte, v any, rejectUnknown bool) error {
	if codec == nil {
		return unmarshal(payload, v, rejectUnknown)
	}
	err := codec.Unmarshal(payload, v)
	if err == nil || failure.IsNilPointer(err) {
		return err
	}
	if _, ok := failure.AsType[*errors.Error](err); ok {
		return err
	}
	e := errors.InvalidField("payload", "cannot be decoded")
	e.Err = failure.QuoteDecoder(err)
	return e
}
