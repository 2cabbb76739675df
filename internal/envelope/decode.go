package envelope

import (
	"fmt"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/wire"
)

// CheckElements returns an error if a payload has more than limit elements. codec, which may panic, is
// one of Formats, or nil for JSON.
func CheckElements(codec Codec, payload []byte, limit int) error {
	n := 0
	if len(payload) <= limit { // an element takes a byte or more
		return nil
	}
	if codec == nil {
		n = wire.Elements(payload)
	} else if counter, ok := codec.(namedCodec).Codec.(interface{ Elements(payload []byte) int }); ok {
		n = counter.Elements(payload)
	}
	if n > limit {
		return errors.InvalidField("payload", fmt.Sprintf("must have at most %d elements and members, not %d", limit, n))
	}
	return nil
}

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
