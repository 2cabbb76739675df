package protobuf_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/chatpb"
)

// equal requires two messages to be equal.
func equal(t *testing.T, want, got proto.Message) {
	t.Helper()
	assert.True(t, proto.Equal(want, got), "got %v, want %v", got, want)
}

func TestCodec_RoundTrip(t *testing.T) {
	sent := &chatpb.Said{Text: "hi", Signature: []byte{0xff}, AnswerTo: &chatpb.Said{Text: "question"}}
	payload, err := protobuf.Codec{}.Marshal(sent)
	require.NoError(t, err)
	var got chatpb.Said
	require.NoError(t, protobuf.Codec{}.Unmarshal(payload, &got))
	for i := range payload {
		payload[i] = 'x' // the message must not keep it
	}
	equal(t, sent, &got)
	require.NoError(t, protobuf.Codec{}.Unmarshal(nil, &got), "an empty payload has the default values")
	equal(t, &chatpb.Said{}, &got)
}

func TestCodec_RejectsPayloads(t *testing.T) {
	nested := func(depth int) (payload []byte) {
		for range depth {
			payload = protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), payload)
		}
		return payload
	}
	assert.NoError(t, protobuf.Codec{}.Unmarshal(nested(63), &chatpb.Said{}))
	for name, payload := range map[string][]byte{
		"half a field":           {0x0a, 0x05, 'a'},
		"a tag of 0":             {0x00},
		"text that is not UTF-8": {0x0a, 0x01, 0xff},
		"too deep":               nested(65),
		"not Protocol Buffers":   []byte(strings.Repeat("\xff", 20)),
	} {
		err := protobuf.Codec{}.Unmarshal(payload, &chatpb.Said{})
		e, ok := errors.AsType[*errors.Error](err)
		require.True(t, ok, "%s: %v", name, err)
		assert.Equal(t, errors.InvalidArgument, e.Code)
		assert.Equal(t, "payload", errors.DetailsOf[errors.FieldDetails](e).Field)
		assert.NoError(t, e.Err, "clients cannot fill the log")
	}
}

func TestCodec_RejectsOtherTypes(t *testing.T) {
	_, err := protobuf.Codec{}.Marshal(7)
	assert.EqualError(t, err, "int does not implement proto.Message")
	_, err = protobuf.Codec{}.Marshal(nil)
	assert.Error(t, err)
	err = protobuf.Codec{}.Unmarshal(nil, new(int))
	assert.Equal(t, errors.Internal, errors.CodeOf(err))
	assert.NoError(t, protobuf.Codec{}.Check(reflect.TypeFor[*chatpb.Say]()))
	assert.EqualError(t, protobuf.Codec{}.Check(reflect.TypeFor[struct{ N int }]()), "struct { N int } does not implement proto.Message")
	assert.EqualError(t, protobuf.Codec{}.Check(reflect.TypeFor[chatpb.Say]()),
		"chatpb.Say does not implement proto.Message, but *chatpb.Say does; register and send pointers")
}

func TestMessage_EncodesAsJSON(t *testing.T) {
	text, err := json.Marshal(&chatpb.Said{Text: "hi", Signature: []byte{0xff}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"text":"hi","signature":"/w=="}`, string(text))
}
