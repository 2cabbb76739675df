package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A publication is a message to many connections, encoded once in each format that they use. Its creator
// frees it. It is not safe for concurrent use.
type publication struct {
	json   *wsconn.Frame   // nil: not used, or the message cannot be encoded
	codecs []*wsconn.Frame // by index in Options.Codecs, likewise; nil if only JSON is used

	// Frames that name their topic, by format; nil if there are none.
	named      []*wsconn.Frame // as droppable as the plain one
	positioned []*wsconn.Frame // not droppable, with the offset
}

// encode encodes a message in the given formats. If some of them cannot encode it, it returns the
// publication in the other formats, and the error.
func (fs *formats) encode(m Message, in formatSet) (p publication, err error) {
	key, err := queueKey(m)
	if err != nil {
		return publication{}, err
	}
	at := time.Now()
	if in.has(formatJSON) {
		p.json, err = encodeDroppable(nil, m, key, at)
	}
	for i, codec := range fs.codecs {
		f := format(i + 1)
		if !in.has(f) {
			continue
		}
		frame, codecErr := encodeDroppable(codec, m, key, at)
		err = failure.Join(err, codecErr)
		p.set(f, frame, len(fs.codecs))
	}
	return p, err
}

// set stores the frame for a format. codecs is the number of all codecs.
func (p *publication) set(f format, frame *wsconn.Frame, codecs int) {
	if f == formatJSON {
		p.json = frame
		return
	}
	if p.codecs == nil {
		p.codecs = make([]*wsconn.Frame, codecs)
	}
	p.codecs[f-1] = frame
}

// frame returns the frame for a format, or nil if there is none.
func (p *publication) frame(f format) *wsconn.Frame {
	switch {
	case f == formatJSON:
		return p.json
	case p.codecs == nil:
		return nil
	}
	return p.codecs[f-1]
}

// namedFrame returns the frame for a format with a topic in its meta, and an offset unless that is 0, encoded
// once. It returns nil if the publication lacks the format.
func (p *publication) namedFrame(f format, topic string, offset uint64) *wsconn.Frame {
	if p.named != nil && p.named[f] != nil {
		return p.named[f]
	}
	return p.encodeNamed(f, topic, offset)
}

// encodeNamed encodes what namedFrame returns.
func (p *publication) encodeNamed(f format, topic string, offset uint64) *wsconn.Frame {
	plain := p.frame(f)
	if plain == nil {
		return nil
	}
	frame := addTopic(plain, f, topic, offset)
	if frame == nil {
		return plain
	}
	frame.CopyPolicy(plain)
	if p.named == nil {
		p.named = make([]*wsconn.Frame, len(p.codecs)+1)
	}
	p.named[f] = frame
	return frame
}

// positionedFrame returns the frame for a format with a topic and an offset in its meta, encoded once. It
// must not be dropped. It is nil if the publication lacks the format.
func (p *publication) positionedFrame(f format, topic string, offset uint64) *wsconn.Frame {
	if p.positioned != nil && p.positioned[f] != nil {
		return p.positioned[f]
	}
	return p.encodePositioned(f, topic, offset)
}

// encodePositioned encodes what positionedFrame returns.
func (p *publication) encodePositioned(f format, topic string, offset uint64) *wsconn.Frame {
	plain := p.frame(f)
	if plain == nil {
		return nil
	}
	if p.positioned == nil {
		p.positioned = make([]*wsconn.Frame, len(p.codecs)+1)
	}
	p.positioned[f] = addTopic(plain, f, topic, offset)
	return p.positioned[f]
}

// empty reports whether the message is not encoded in any format.
func (p *publication) empty() bool {
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
func addTopic(plain *wsconn.Frame, f format, topic string, offset uint64) *wsconn.Frame {
	add := wire.AppendPositioned
	if f != formatJSON {
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
	if f == formatJSON {
		frame.Seal()
	} else {
		frame.SealBinary()
	}
	return frame
}

// setPolicy sets the policy of the frames. It must be called before the first of them is queued.
func (p *publication) setPolicy(policy wsconn.SlowConsumerPolicy) {
	if p.json != nil {
		p.json.SetPolicy(policy)
	}
	for _, frame := range p.codecs {
		if frame != nil {
			frame.SetPolicy(policy)
		}
	}
}

// free gives up the creator's references to the frames.
func (p *publication) free() {
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

// lacks reports whether the publication lacks one of the formats.
func (p *publication) lacks(formats formatSet) bool {
	for f := formatJSON; f <= maxCodecs; f++ {
		if formats.has(f) && p.frame(f) == nil {
			return true
		}
	}
	return false
}
