package router

import "reflect"

// A format is the payload format of a connection: formatJSON, or 1 plus the index of a codec.
type format uint8

const formatJSON format = 0

// maxCodecs is the most codecs that formats may have.
const maxCodecs = 16

// A formatSet is a set of formats, as bits.
type formatSet uint32

// onlyJSON is the set that contains formatJSON.
const onlyJSON formatSet = 1 << formatJSON

func (s formatSet) has(f format) bool { return s&(1<<f) != 0 }

func (s *formatSet) add(f format) { *s |= 1 << f }

// formats are the payload formats of a router. They do not change after the last add.
type formats struct {
	codecs []Codec // each is a namedCodec
}

// A namedCodec is a Codec whose Subprotocol has been called.
type namedCodec struct {
	Codec

	name string
}

// Subprotocol returns what the codec has returned.
func (c namedCodec) Subprotocol() string { return c.name }

// add adds the format of a codec, which has returned its subprotocol.
func (fs *formats) add(codec Codec, subprotocol string) {
	fs.codecs = append(fs.codecs, namedCodec{codec, subprotocol})
}

// end returns the format after the last one.
func (fs *formats) end() format { return format(len(fs.codecs) + 1) }

// all returns all formats.
func (fs *formats) all() formatSet { return 1<<fs.end() - 1 }

// codec returns the codec of a format, or nil for JSON.
func (fs *formats) codec(f format) Codec {
	if f == formatJSON {
		return nil
	}
	return fs.codecs[f-1]
}

// subprotocol returns the name of a format between nodes: its subprotocol, or "" for JSON.
func (fs *formats) subprotocol(f format) string {
	if f == formatJSON {
		return ""
	}
	return fs.codecs[f-1].Subprotocol()
}

// bySubprotocol returns the format with a name between nodes.
func (fs *formats) bySubprotocol(name []byte) (f format, ok bool) {
	for f := range fs.end() {
		if fs.subprotocol(f) == string(name) {
			return f, true
		}
	}
	return 0, false
}

// toPublish returns the formats in which a message is encoded: those that receivers on this node use
// and, if it is for other nodes too, all, because those need not know the Go type. If there are no
// receivers, it is JSON, so that an error is found nevertheless.
func (fs *formats) toPublish(used formatSet, allNodes bool) formatSet {
	switch {
	case allNodes:
		return fs.all()
	case used == 0:
		return onlyJSON
	}
	return used
}

// check returns an error if a codec, whose subprotocol it returns, does not support a type.
func (fs *formats) check(typ reflect.Type) (subprotocol string, err error) {
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
