package protobuf_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/internal/chatpb"
)

func TestCodec_Elements(t *testing.T) {
	list := func(values ...any) proto.Message {
		l, err := structpb.NewList(values)
		require.NoError(t, err)
		return l
	}
	for name, c := range map[string]struct {
		message proto.Message
		want    int
	}{
		"nothing":        {&chatpb.Say{}, 0},
		"fields":         {&chatpb.Say{Room: "go", Text: strings.Repeat("x", 1000)}, 2},
		"packed numbers": {&chatpb.Say{Mentions: []int64{1, 300, -1, 0}}, 4},
		"messages":       {&chatpb.Said{AnswerTo: &chatpb.Said{AnswerTo: &chatpb.Said{Text: "x"}}}, 3},
		"empty messages": {&structpb.ListValue{Values: make([]*structpb.Value, 5)}, 5},
		"lists":          {list(1, "a", []any{true, nil}), 3 + 3 + 2 + 2}, // values and what they are, the same of the inner list
		"a packed path":  {&descriptorpb.SourceCodeInfo{Location: []*descriptorpb.SourceCodeInfo_Location{{Path: []int32{1, 2, 3}}}}, 1 + 3},
		"a double":       {&structpb.Value{Kind: &structpb.Value_NumberValue{NumberValue: 1}}, 1},
	} {
		payload, err := proto.Marshal(c.message)
		require.NoError(t, err)
		assert.Equal(t, c.want, protobuf.Codec{}.Elements(payload, reflect.TypeOf(c.message)), name)
	}
	assert.Zero(t, protobuf.Codec{}.Elements([]byte("abc"), reflect.TypeFor[struct{}]()), "a type without payloads")
}

// FuzzCodec_Elements decodes payloads: no message has more elements than were counted.
func FuzzCodec_Elements(f *testing.F) {
	for _, m := range []proto.Message{
		&structpb.ListValue{Values: make([]*structpb.Value, 5)}, &descriptorpb.FileDescriptorProto{Dependency: []string{"a"}, PublicDependency: []int32{1}},
	} {
		payload, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, m := range []proto.Message{&structpb.ListValue{}, &structpb.Struct{}, &chatpb.Said{}, &descriptorpb.FileDescriptorProto{}} {
			counted := protobuf.Codec{}.Elements(payload, reflect.TypeOf(m))
			if err := (protobuf.Codec{}).Unmarshal(payload, m); err == nil {
				assert.GreaterOrEqual(t, counted, elementsOf(m.ProtoReflect()))
			}
		}
	})
}

// elementsOf returns how many elements of repeated fields and of maps a message has, at all levels.
func elementsOf(m protoreflect.Message) (n int) {
	add := func(field protoreflect.FieldDescriptor, v protoreflect.Value) {
		n++
		if field.Message() != nil {
			n += elementsOf(v.Message())
		}
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				add(field.MapValue(), v)
				return true
			})
		case field.IsList():
			for i := range v.List().Len() {
				add(field, v.List().Get(i))
			}
		default:
			add(field, v)
		}
		return true
	})
	return n
}
