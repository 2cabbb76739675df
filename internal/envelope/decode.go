package envelope

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// decodeWith decodes a payload in the format of a codec, which may panic, into the value that v points to.
func decodeWith(codec Codec, payload []byte, v any) error {
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
