package router

import (
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A publication is a message to many connections, encoded once in each format that they use. The
// creator releases it.
type publication struct {
	json   *wsconn.Frame   // nil: not used, or the message cannot be encoded
	codecs []*wsconn.Frame // by index in Options.Codecs, likewise; nil if only JSON is used

	// Frames that name their topic, by format; nil if there are none.
	named        []*wsconn.Frame // for clients that have greeted
	withPosition []*wsconn.Frame // for followers, with the offset
}

// encodeAll encodes a message in the given formats. If some of them cannot encode it, it returns
// the publication in the other formats, and the error.
func (r *Router) encodeAll(m Message, formats formatSet) (p publication, err error) {
	if r.opts.Development {
		r.hintSent(m)
	}
	key, err := conflationKey(m)
	if err != nil {
		return publication{}, err
	}
	at := time.Now()
	if formats.has(formatJSON) {
		p.json, err = encodeDroppable(nil, m, key, at)
	}
	for i, codec := range r.opts.Codecs {
		if !formats.has(format(i + 1)) {
			continue
		}
		frame, codecErr := encodeDroppable(codec, m, key, at)
		err = failure.Join(err, codecErr)
		p.set(format(i+1), frame, len(r.opts.Codecs))
	}
	return p, err
}

// encodeDroppable encodes an event with its conflation key.
func encodeDroppable(codec Codec, m Message, key string, at time.Time) (*wsconn.Frame, error) {
	frame, err := encodeAt(codec, m, "", at)
	if err != nil {
		return nil, err
	}
	frame.Droppable(key)
	return frame, nil
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

// frameOf returns the frame for a subscriber of a topic that does not receive positions, or nil if
// there is none. It names the topic if the client has greeted: others may not expect that. On a
// user log it has the offset, so that a client which is about to resume its session knows what
// comes again.
func (p *publication) frameOf(c *Conn, t *topic, at broker.Position) *wsconn.Frame {
	plain, named, offset := p.frame(c.format), c.hasGreeted(), uint64(0)
	if isUserLog(t.name) {
		named, offset = c.router.resumes(), at.Offset
	}
	if plain == nil || !named {
		return plain
	}
	if p.named == nil {
		p.named = make([]*wsconn.Frame, len(p.codecs)+1)
	}
	frame := p.named[c.format]
	if frame == nil {
		if frame = addTopic(plain, c.format, clientTopic(t.name), offset); frame == nil {
			return plain
		}
		frame.CopyPolicy(plain)
		p.named[c.format] = frame
	}
	return frame
}

// positioned returns the frame for a client with a topic and an offset in its meta, encoded once, or without
// them if the client does not expect them. It returns nil if the publication lacks its format.
func (p *publication) positioned(c *Conn, topic string, offset uint64) *wsconn.Frame {
	f := c.format
	plain := p.frame(f)
	if plain == nil || !c.expectsPositions() {
		return plain
	}
	if p.withPosition == nil {
		p.withPosition = make([]*wsconn.Frame, len(p.codecs)+1)
	}
	if p.withPosition[f] == nil {
		p.withPosition[f] = addTopic(plain, f, topic, offset)
	}
	return p.withPosition[f]
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
	releaseFrames(p.withPosition)
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

// send queues the frame for the format of a connection. It reports false if there is none, or if the
// connection does not take it.
func (p *publication) send(c *Conn) bool { return sendShared(c, p.frame(c.format)) }

// sendShared queues a frame that the caller keeps. It reports false if the frame is nil, or if the
// connection does not take it.
func sendShared(c *Conn, frame *wsconn.Frame) bool {
	if frame == nil {
		return false
	}
	frame.Retain()
	return c.send(frame) == nil
}

// sendChunk queues the frames for the subscribers of a topic in a chunk, except one, which may be nil, and
// returns for how many. Connections that are closed are skipped.
func (p *publication) sendChunk(t *topic, conns []*Conn, except *Conn, at broker.Position) (receivers int) {
	var frames [chunkEntries]*wsconn.Frame
	for i, c := range conns {
		if c != except && !c.ws.Closing() {
			frames[i] = p.frameOf(c, t, at)
		}
	}
	for i, c := range conns {
		if sendShared(c, frames[i]) {
			receivers++
		}
	}
	return receivers
}

// sendAll sends a publication to many connections. Connections that are closed are skipped.
func (p *publication) sendAll(conns []*Conn) {
	for _, c := range conns {
		p.send(c)
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

// formatsToPublish returns the formats in which a message is encoded: those that receivers on this
// node use and, if it is for other nodes too, all, because those need not know the Go type. If
// there are no receivers, it is JSON, so that an error is found nevertheless.
func (r *Router) formatsToPublish(used formatSet, allNodes bool) formatSet {
	switch {
	case allNodes && r.opts.Broker != nil:
		return 1<<(len(r.opts.Codecs)+1) - 1
	case used == 0:
		return 1 << formatJSON
	}
	return used
}

// formatsOf returns the formats that connections use. Without codecs, it does not look at them.
func (r *Router) formatsOf(conns []*Conn) formatSet {
	if len(r.opts.Codecs) == 0 {
		return 1 << formatJSON
	}
	var used formatSet
	for _, c := range conns {
		used.add(c.format)
	}
	return used
}

// formatsToPublish returns the formats in which a message to a topic is encoded.
func (ts *topics) formatsToPublish(name string, allNodes bool) formatSet {
	if len(ts.router.opts.Codecs) == 0 {
		return 1 << formatJSON
	}
	return ts.router.formatsToPublish(ts.formatsOf(ts.find(name)), allNodes)
}

// formatsOf returns the formats that the subscribers of a topic on this node use, which may be nil.
// A connection that subscribes with another format afterwards receives only later messages. Without
// codecs, it does not look at them.
func (ts *topics) formatsOf(t *topic) formatSet {
	codecs := len(ts.router.opts.Codecs)
	switch {
	case codecs == 0:
		return 1 << formatJSON
	case t == nil:
		return 0
	}
	all := formatSet(1)<<(codecs+1) - 1
	var used formatSet
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.subscribersLocked() {
		if used.add(c.format); used == all {
			break
		}
	}
	return used
}
