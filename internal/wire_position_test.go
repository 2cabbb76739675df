package internal_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wire"
)

func TestAppendPositioned_AddsToMeta(t *testing.T) {
	at := time.UnixMilli(1730000000000)
	for typ, quoted := range map[string]string{"SAID": `"SAID"`, `a"}\`: `"a\"}\\"`, "é": `"é"`} {
		head := wire.OutgoingHead{Type: typ, At: at}
		envelope := append(wire.AppendHead(nil, &head), `,"payload":{"a":"}"}}`...)
		got, ok := wire.AppendPositioned([]byte("x"), envelope, `room/"go"`, 17)
		require.True(t, ok)
		assert.Equal(t, `x{"type":`+quoted+`,"meta":{"timestamp":1730000000000,"topic":"room/\"go\"","offset":17},"payload":{"a":"}"}}`, string(got))

		envelope = append(wire.AppendBinaryHead(nil, &head), 0xff, 0x00)
		got, ok = wire.AppendPositionedBinary(nil, envelope, "room/go", 17)
		require.True(t, ok)
		parsed, err := wire.ParseBinary(got)
		require.NoError(t, err)
		assert.Equal(t, typ, string(parsed.Type))
		assert.Equal(t, []byte{0xff, 0x00}, parsed.Payload)
		assert.Contains(t, string(got), `,"topic":"room/go","offset":17}}`)
	}
	for _, other := range []string{"", "{}", `{"type":"A"}`, `{"type":"A","meta":{}}`, `{"type":"A","meta":{"timestamp":1,"correlationId":"x"}}`, `{"type":"A","meta":{"timestamp":1`, `{"type":"A`} {
		_, ok := wire.AppendPositioned(nil, []byte(other), "t", 1)
		assert.False(t, ok, other)
		_, ok = wire.AppendPositionedBinary(nil, append([]byte{0, byte(len(other))}, other...), "t", 1)
		assert.False(t, ok, other)
	}
	_, ok := wire.AppendPositionedBinary(nil, []byte{9, 9, 9}, "t", 1)
	assert.False(t, ok)
}
