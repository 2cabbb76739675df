package protobuf

import (
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Elements returns the number of fields in a payload of a type, at all levels, for router.Limits. A repeated field
// counts once for each of its elements. For a payload that Unmarshal refuses, it may be anything.
func (Codec) Elements(payload []byte, t reflect.Type) int {
	m, ok := reflect.TypeAssert[proto.Message](reflect.Zero(t))
	if !ok {
		return 0
	}
	return elements(m.ProtoReflect().Descriptor(), payload, maxDepth)
}

func elements(d protoreflect.MessageDescriptor, payload []byte, depth int) (n int) {
	for depth > 0 && len(payload) > 0 {
		number, typ, size := protowire.ConsumeField(payload)
		if size < 0 {
			return n
		}
		_, _, tag := protowire.ConsumeTag(payload)
		n += elementsOfField(d.Fields().ByNumber(number), number, typ, payload[tag:size], depth)
		payload = payload[size:]
	}
	return n
}

// elementsOfField returns how many elements the value of a field has, with itself. field is nil if it is unknown.
func elementsOfField(field protoreflect.FieldDescriptor, number protowire.Number, typ protowire.Type, value []byte, depth int) int {
	switch {
	case field == nil:
		return 1
	case typ == protowire.StartGroupType && field.Message() != nil:
		group, _ := protowire.ConsumeGroup(number, value)
		return 1 + elements(field.Message(), group, depth-1)
	case typ != protowire.BytesType:
		return 1
	}
	value, _ = protowire.ConsumeBytes(value)
	switch kind := field.Kind(); {
	case field.Message() != nil:
		return 1 + elements(field.Message(), value, depth-1)
	case kind == protoreflect.StringKind || kind == protoreflect.BytesKind:
		return 1
	default:
		return packedElements(kind, value)
	}
}

// packedElements returns the number of elements of a packed repeated field.
func packedElements(kind protoreflect.Kind, value []byte) (n int) {
	switch kind {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return len(value) / 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return len(value) / 8
	default:
		for _, b := range value {
			if b < 0x80 { // the last byte of a number
				n++
			}
		}
		return n
	}
}
