package router

import (
	"github.com/penstock-go/penstock/internal/envelope"
)

// This file queues publications on connections.

// encodeAll encodes a message in the given formats. If some of them cannot encode it, it returns the
// publication in the other formats, and the error.
func (r *Router) encodeAll(m Message, in envelope.FormatSet) (envelope.Publication, error) {
	if r.hints != nil {
		r.hints.Sent(m)
	}
	return r.formats.Encode(m, in)
}

// sendAll sends a publication to many connections. Connections that are closed are skipped.
func sendAll(p *envelope.Publication, conns []*Conn) {
	for _, c := range conns {
		if frame := p.Frame(c.member.Format); frame != nil {
			frame.Retain()
			_ = c.send(frame) // fails only if the connection is closed, or a policy drops the message
		}
	}
}

// formatsOf returns the formats that connections use. Without codecs, it does not look at them.
func (r *Router) formatsOf(conns []*Conn) envelope.FormatSet {
	if r.formats.All() == envelope.OnlyJSON {
		return envelope.OnlyJSON
	}
	var used envelope.FormatSet
	for _, c := range conns {
		used.Add(c.member.Format)
	}
	return used
}

// formatsToPublishOn returns the formats in which a message to a topic is encoded.
func (r *Router) formatsToPublishOn(topic string, allNodes bool) envelope.FormatSet {
	if r.formats.All() == envelope.OnlyJSON {
		return envelope.OnlyJSON
	}
	return r.formats.ToPublish(r.topics.FormatsOn(topic), allNodes && r.opts.Broker != nil)
}
