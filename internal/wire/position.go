package wire

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"github.com/penstock-go/penstock/internal/jsonplan"
)

// AppendPositioned appends an envelope that AppendHead has begun, with the topic and the offset of a
// publication in its meta; without the offset if that is 0. ok is false if the envelope has another form.
func AppendPositioned(b, envelope []byte, topic string, offset uint64) (_ []byte, ok bool) {
	at := metaEnd(envelope)
	if at < 0 {
		return b, false
	}
	b = append(b, envelope[:at]...)
	b = append(b, `,"topic":`...)
	b = jsonplan.AppendString(b, topic)
	if offset > 0 {
		b = append(b, `,"offset":`...)
		b = strconv.AppendUint(b, offset, 10)
	}
	return append(b, envelope[at:]...), true
}

// AppendPositionedBinary is [AppendPositioned] for a binary envelope.
func AppendPositionedBinary(b, envelope []byte, topic string, offset uint64) (_ []byte, ok bool) {
	if len(envelope) < headLengthBytes {
		return b, false
	}
	end := headLengthBytes + int(binary.BigEndian.Uint16(envelope))
	if end > len(envelope) {
		return b, false
	}
	b = appendWithLength(b, func(b []byte) []byte {
		b, ok = AppendPositioned(b, envelope[headLengthBytes:end], topic, offset)
		return b
	})
	return append(b, envelope[end:]...), ok
}

// metaEnd returns the offset of the brace that ends meta in an envelope without a correlation ID, or
// -1.
func metaEnd(envelope []byte) int {
	const typ, meta = `{"type":`, `,"meta":{"timestamp":`
	if !bytes.HasPrefix(envelope, []byte(typ)) {
		return -1
	}
	i, err := input(envelope).text(len(typ))
	if err != nil || !bytes.HasPrefix(envelope[i:], []byte(meta)) {
		return -1
	}
	if i, err = input(envelope).number(i + len(meta)); err != nil || i >= len(envelope) || envelope[i] != '}' {
		return -1
	}
	return i
}
