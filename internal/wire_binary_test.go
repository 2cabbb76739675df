package internal_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wire"
)

func binaryEnvelope(head, payload string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(head))), head+payload...)
}

// checkBinary compares the functions for binary envelopes with each other and with those for JSON,
// for any input.
func checkBinary(t *testing.T, data []byte) {
	t.Helper()
	got, err := wire.ParseBinary(data)
	head, headErr := wire.ParseBinaryHead(data)
	known := head
	head.FindMeta(nil) // does nothing: meta is known without the rest of the message
	require.Equal(t, known, head)
	for n := range min(len(data), 300) {
		part, partErr := wire.ParseBinaryHeadPrefix(data[:n])
		switch {
		case err != nil:
		case partErr == nil:
			require.Equal(t, string(got.Type), string(part.Type), "%.300q prefix of %d bytes", data, n)
		default:
			require.Nil(t, part.Type, "%.300q prefix of %d bytes", data, n)
		}
	}
	if err != nil {
		return
	}
	length := int(binary.BigEndian.Uint16(data))
	want, ok := reference(data[2 : 2+length])
	require.True(t, ok, "%.300q", data)
	require.Nil(t, want.Payload, "%.300q", data)
	require.NoError(t, headErr, "%.300q", data)
	require.Equal(t, string(want.Type), string(got.Type), "%.300q", data)
	require.Equal(t, string(want.Type), string(head.Type), "%.300q", data)
	sameMeta(t, want.Meta, got.Meta, data)
	sameMeta(t, want.Meta, head.Meta, data)
	require.Equal(t, string(data[2+length:]), string(got.Payload), "%.300q", data)
	require.Equal(t, len(data) == 2+length, got.Payload == nil, "%.300q", data)
}

func FuzzBinaryEnvelope(f *testing.F) {
	for _, seed := range seeds() {
		f.Add([]byte(seed))
		f.Add(binaryEnvelope(seed, ""))
		f.Add(binaryEnvelope(seed, "\xa1\x61n\x07"))
	}
	f.Add([]byte("\xff\xff{\"type\":\"A\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4<<10 {
			t.Skip("too long for the reference")
		}
		checkBinary(t, data)
		checkBinary(t, binaryEnvelope(string(data), "payload"))
	})
}

func TestParseBinary_RejectsMalformedEnvelopes(t *testing.T) {
	for name, tt := range map[string]struct {
		data, head, whole string
	}{
		"nothing":                     {"", "message is empty", "message is empty"},
		"half a length":               {"\x00", "the length of the head is more than follows in the message", "the length of the head is more than follows in the message"},
		"an empty head":               {"\x00\x00", "message is empty", "message is empty"},
		"a payload without head":      {"\x00\x00\xa0", "message is empty", "message is empty"},
		"a length beyond the message": {"\x00\x0d{\"type\":\"A\"}", "the length of the head is more than follows in the message", "the length of the head is more than follows in the message"},
		"the largest length":          {"\xff\xff{\"type\":\"A\"}", "the length of the head is more than follows in the message", "the length of the head is more than follows in the message"},
		"a length that cuts the head": {"\x00\x0b{\"type\":\"A\"}", "message ends too early", "message ends too early"},
		"a JSON envelope":             {`{"type":"A","payload":1}`, "the length of the head is more than follows in the message", "the length of the head is more than follows in the message"},
		"a head that is an array":     {"\x00\x02[]", "message must be a JSON object", "message must be a JSON object"},
		"a head without type":         {"\x00\x02{}", "type is missing", "type is missing"},
		"a head with two types":       {"\x00\x17{\"type\":\"A\",\"type\":\"B\"}", "", `duplicate key "type"`},
		"a head with a payload":       {"\x00\x18{\"type\":\"A\",\"payload\":1}", "", "the head of a binary message must not contain a payload"},
		"a payload that is null":      {"\x00\x1b{\"type\":\"A\",\"payload\":null}\xa0", "", "the head of a binary message must not contain a payload"},
		"a head that is not UTF-8":    {"\x00\x11{\"type\":\"A\",\"\xff\":1}", "", "message is not valid UTF-8"},
		"text behind the head":        {"\x00\x0d{\"type\":\"A\"}x", "", "message is not valid JSON: unexpected character at byte 12"},
		"meta that is not an object":  {"\x00\x15{\"type\":\"A\",\"meta\":[]}", "meta must be an object", "meta must be an object"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.ParseBinaryHead([]byte(tt.data))
			assert.Equal(t, tt.head, text(err))
			_, err = wire.ParseBinary([]byte(tt.data))
			assert.Equal(t, tt.whole, text(err))
			checkBinary(t, []byte(tt.data))
		})
	}
}

func TestParseBinary_SeparatesHeadAndPayload(t *testing.T) {
	const head = `{"type":"A","x":"` + "é" + `","meta":{"correlationId":"c"}}`
	got, err := wire.ParseBinary(binaryEnvelope(head, "\x00\xff{"))
	require.NoError(t, err)
	assert.Equal(t, "A c \x00\xff{", fmt.Sprintf("%s %s %s", got.Type, got.CorrelationID, got.Payload))
	got, err = wire.ParseBinary(binaryEnvelope(head, ""))
	require.NoError(t, err)
	assert.Nil(t, got.Payload)
}

func TestParseBinaryHead_LongHead(t *testing.T) {
	data := binaryEnvelope(`{"type":"A","x":"`+strings.Repeat("x", 30_000)+`","meta":{"correlationId":"c"},"y":"`+strings.Repeat("y", 30_000)+`"}`, "payload")
	head, err := wire.ParseBinaryHead(data)
	require.NoError(t, err)
	assert.Equal(t, "c", string(head.CorrelationID), "without FindMeta")
	head, err = wire.ParseBinaryHeadPrefix(data[:100])
	require.NoError(t, err)
	assert.Equal(t, "A", string(head.Type))
}

func TestAppendBinaryHead_RoundTrip(t *testing.T) {
	name := strings.Repeat("\x01", wire.MaxNameBytes) // six bytes each in JSON
	b := wire.AppendBinaryHead([]byte("before"), &wire.OutgoingHead{Type: name, CorrelationID: name, At: time.UnixMilli(7)})
	got, err := wire.ParseBinary(append(b[len("before"):], "payload"...))
	require.NoError(t, err)
	assert.Equal(t, name+name+"payload", fmt.Sprintf("%s%s%s", got.Type, got.CorrelationID, got.Payload))
	ack := wire.AppendBinaryHeartbeatAck(nil, time.UnixMilli(7))
	assert.Equal(t, "\x00\x2a"+`{"type":"__heartbeat_ack","meta":{"ts":7}}`, string(ack))
}

func TestParseBinary_DoesNotAllocate(t *testing.T) {
	data := binaryEnvelope(`{"type":"SAY","meta":{"timestamp":1730000000000,"correlationId":"b7c1"}}`, strings.Repeat("x", 1000))
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := wire.ParseBinaryHead(data); err != nil {
			t.Fatal(err)
		}
		if _, err := wire.ParseBinary(data); err != nil {
			t.Fatal(err)
		}
	}))
}
