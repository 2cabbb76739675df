package envelope

import "reflect"

// A Format is the payload format of a connection: JSON, or 1 plus the index of a codec.
type Format uint8

// JSON is the format without a codec.
const JSON Format = 0

// MaxCodecs is the most codecs that Formats may have.
const MaxCodecs = 16

// A FormatSet is a set of formats, as bits.
type FormatSet uint32

// OnlyJSON is the set that contains only JSON.
const OnlyJSON FormatSet = 1 << JSON

// Has reports whether the set contains a format.
func (s FormatSet) Has(f Format) bool { return s&(1<<f) != 0 }

// Add adds a format.
func (s *FormatSet) Add(f Format) { *s |= 1 << f }

// Formats are the payload formats of a router. They do not change after the last Add.
type Formats struct {
	codecs []Codec // each is a namedCodec
}

// A namedCodec is a Codec whose Subprotocol has been called.
type namedCodec struct {
	Codec

	name string
}

// Subprotocol returns what the codec has returned.
func (c namedCodec) Subprotocol() string { return c.name }

// Add adds the format of a codec, which has returned its subprotocol. There must be at most MaxCodecs.
func (fs *Formats) Add(codec Codec, subprotocol string) {
	fs.codecs = append(fs.codecs, namedCodec{codec, subprotocol})
}

// End returns the format after the last one.
func (fs *Formats) End() Format { return Format(len(fs.codecs) + 1) }

// All returns all formats.
func (fs *Formats) All() FormatSet { return 1<<fs.End() - 1 }

// Codec returns the codec of a format, or nil for JSON.
func (fs *Formats) Codec(f Format) Codec {
	if f == JSON {
		return nil
	}
	return fs.codecs[f-1]
}

// Subprotocol returns the name of a format between nodes: its subprotocol, or "" for JSON.
func (fs *Formats) Subprotocol(f Format) string {
	if f == JSON {
		return ""
	}
	return fs.codecs[f-1].Subprotocol()
}

// BySubprotocol returns the format with a name between nodes.
func (fs *Formats) BySubprotocol(name []byte) (f Format, ok bool) {
	for f := range fs.End() {
		if fs.Subprotocol(f) == string(name) {
			return f, true
		}
	}
	return 0, false
}

// ToPublish returns the formats in which a message is encoded: those that receivers on this node use
// and, if it is for other nodes too, all, because those need not know the Go type. If there are no
// receivers, it is JSON, so that an error is found nevertheless.
func (fs *Formats) ToPublish(used FormatSet, allNodes bool) FormatSet {
	switch {
	case allNodes:
		return fs.All()
	case used == 0:
		return OnlyJSON
	}
	return used
}

// Check returns an error if a codec, whose subprotocol it returns, does not support a type.
func (fs *Formats) Check(typ reflect.Type) (subprotocol string, err error) {
	for _, codec := range fs.codecs {
		checker, ok := codec.(namedCodec).Codec.(interface{ Check(reflect.Type) error })
		if !ok {
			continue
		}
		if err := checker.Check(typ); err != nil {
			return codec.Subprotocol(), err
		}
	}
	return "", nil
}
