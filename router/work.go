package router

import (
	"math"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topicname"
)

// Work is what a message of the protocol about topics makes the server do, estimated before it is
// done: from what this node knows, and otherwise as the most that is possible. The zero Work is
// that of all other messages.
//
// The state of a topic is not part of it: only the store knows its size, and asking for it would
// take a round trip before every subscription. A client pays for the first part, of at most 128
// KiB, when that has been read. The other parts are read one at a time, when the client has read
// those before.
type Work struct {
	Topics       int // subscriptions
	Publications int // of histories, which the client has missed
	Members      int // of presence, in the answer
}

// add adds what a subscription makes the server do.
func (w *Work) add(c *Conn, m *protocol.Subscribe) {
	if !topicname.IsUserLog(m.Topic) {
		w.Topics++
	}
	topics := &c.router.topics
	p := topics.PatternOf(m.Topic)
	if m.Presence && p.Presence {
		w.Members += topics.MemberCount(m.Topic)
	}
	if p.HasHistory() {
		w.Publications += topics.ReadAtMost(m.Topic, p, broker.Position{Epoch: m.Epoch, Offset: m.Offset}, int(min(m.Last, math.MaxInt32)))
	}
}

// subscribeWork estimates the work of a $ws:subscribe, whose payload is decoded for that before ingress.
func (c *Conn) subscribeWork(in *incoming) Work {
	var w Work
	var m protocol.Subscribe
	if parsed, err := in.parse(); err == nil && parsed.Payload != nil && envelope.UnmarshalJSON(parsed.Payload, &m) == nil {
		w.add(c, &m)
	}
	w.Topics = 1 // even if it is not valid
	return w
}

// chargeTopics calls the ingress functions of $ws:subscribe once for all topics that a $ws:resume
// subscribes.
func (c *Context) chargeTopics(presented []protocol.Subscribe, granted []string) error {
	route := c.conn.router.routes[protocol.TypeSubscribe]
	in := c.conn.ingressContext(route.name, c.identity, 0, c.ReceivedAt())
	known := map[string]bool{}
	for i := range presented {
		known[presented[i].Topic] = true
		in.Work.add(c.conn, &presented[i])
	}
	for _, name := range granted {
		if !known[name] && !topicname.IsUserLog(name) {
			in.Work.Topics++
		}
	}
	if in.Work == (Work{}) {
		return nil
	}
	for _, admit := range route.ingress {
		if err := admit(c, in); err != nil {
			return err
		}
	}
	return nil
}
