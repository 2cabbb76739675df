package envelope

import (
	"time"

	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A Publication is a message to many connections, encoded once in each format that they use. Its creator
// frees it. It is not safe for concurrent use.
type Publication struct {
	formats int // those of the node: subscribers may use more than the message has, and begin to use others meanwhile

	json   *wsconn.Frame   // nil: not used, or the message cannot be encoded
	codecs []*wsconn.Frame // by Format - 1, likewise; nil if only JSON is used

	// Frames that name their topic, by format; nil if there are none.
	named      []*wsconn.Frame // as droppable as the plain one
	positioned []*wsconn.Frame // not droppable, with the offset
}

// Encode encodes a message in the given formats. If some of them cannot encode it, it returns the
// publication in the other formats, and the error.
func (fs *Formats) Encode(m Message, in FormatSet) (p Publication, err error) {
	key, err := queueKey(m)
	if err != nil {
		return Publication{}, err
	}
	at := time.Now()
	p.formats = len(fs.codecs) + 1
	if in.Has(JSON) {
		p.json, err = encodeDroppable(nil, m, key, at)
	}
	for i, codec := range fs.codecs {
		f := Format(i + 1)
		if !in.Has(f) {
			continue
		}
		frame, codecErr := encodeDroppable(codec, m, key, at)
		err = failure.Join(err, codecErr)
		p.set(f, frame)
	}
	return p, err
}

// set stores the frame for a format.
func (p *Publication) set(f Format, frame *wsconn.Frame) {
	if f == JSON {
		p.json = frame
		return
	}
	if p.codecs == nil {
		p.codecs = make([]*wsconn.Frame, p.formats-1)
	}
	p.codecs[f-1] = frame
}

// Frame returns the frame for a format, or nil if there is none.
func (p *Publication) Frame(f Format) *wsconn.Frame {
	switch {
	case f == JSON:
		return p.json
	case p.codecs == nil:
		return nil
	}
	return p.codecs[f-1]
}

// Named returns the frame for a format with a topic in its meta, and an offset unless that is 0, encoded
// once. It returns nil if the publication lacks the format.
func (p *Publication) Named(f Format, topic string, offset uint64) *wsconn.Frame {
	if p.named != nil && p.named[f] != nil {
		return p.named[f]
	}
	return p.encodeNamed(f, topic, offset)
}

// encodeNamed encodes what Named returns.
func (p *Publication) encodeNamed(f Format, topic string, offset uint64) *wsconn.Frame {
	plain := p.Frame(f)
	if plain == nil {
		return nil
	}
	frame := addTopic(plain, f, topic, offset)
	if frame == nil {
		return plain
	}
	frame.CopyPolicy(plain)
	if p.named == nil {
		p.named = make([]*wsconn.Frame, p.formats)
	}
	p.named[f] = frame
	return frame
}

// Positioned returns the frame for a format with a topic and an offset in its meta, encoded once. It
// is not droppable. It is nil if the publication lacks the format.
func (p *Publication) Positioned(f Format, topic string, offset uint64) *wsconn.Frame {
	if p.positioned != nil && p.positioned[f] != nil {
		return p.positioned[f]
	}
	return p.encodePositioned(f, topic, offset)
}

// encodePositioned encodes what Positioned returns.
func (p *Publication) encodePositioned(f Format, topic string, offset uint64) *wsconn.Frame {
	plain := p.Frame(f)
	if plain == nil {
		return nil
	}
	if p.positioned == nil {
		p.positioned = make([]*wsconn.Frame, p.formats)
	}
	p.positioned[f] = addTopic(plain, f, topic, offset)
	return p.positioned[f]
}

// IsEmpty reports whether the message is not encoded in any format.
func (p *Publication) IsEmpty() bool {
	if p.json != nil {
		return false
	}
	for _, frame := range p.codecs {
		if frame != nil {
			return false
		}
	}
	return true
}

// addTopic returns a new frame with a topic in its meta, and an offset unless that is 0. It returns nil if
// the envelope has another form than those of publications.
func addTopic(plain *wsconn.Frame, f Format, topic string, offset uint64) *wsconn.Frame {
	add := wire.AppendPositioned
	if f != JSON {
		add = wire.AppendPositionedBinary
	}
	frame, ok := wsconn.NewFrame(), false
	frame.At = plain.At
	frame.Append(func(b []byte) []byte {
		b, ok = add(b, plain.Text(), topic, offset)
		return b
	})
	if !ok {
		frame.Release()
		return nil
	}
	if f == JSON {
		frame.Seal()
	} else {
		frame.SealBinary()
	}
	return frame
}

// SetPolicy sets the policy of the frames. It must be called before the first of them is queued.
func (p *Publication) SetPolicy(policy wsconn.SlowConsumerPolicy) {
	if p.json != nil {
		p.json.SetPolicy(policy)
	}
	for _, frame := range p.codecs {
		if frame != nil {
			frame.SetPolicy(policy)
		}
	}
}

// Restamp makes a time the one at which the frames were created, and returns when that was.
func (p *Publication) Restamp(now time.Time) (encoded time.Time) {
	for f := range Format(p.formats) {
		if frame := p.Frame(f); frame != nil {
			encoded, frame.At = frame.At, now
		}
	}
	return encoded
}

// Free gives up the creator's references to the frames.
func (p *Publication) Free() {
	releaseFrames(p.named)
	releaseFrames(p.positioned)
	releaseFrames(p.codecs)
	if p.json != nil {
		p.json.Release()
	}
}

// releaseFrames releases the frames that are not nil.
func releaseFrames(frames []*wsconn.Frame) {
	for _, frame := range frames {
		if frame != nil {
			frame.Release()
		}
	}
}

// Lacks reports whether the publication lacks one of the formats.
func (p *Publication) Lacks(in FormatSet) bool {
	for f := JSON; f <= MaxCodecs; f++ {
		if in.Has(f) && p.Frame(f) == nil {
			return true
		}
	}
	return false
}
