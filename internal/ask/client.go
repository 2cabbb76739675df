package ask

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file calls the clients of this node. A caller waits on its own goroutine, which also decodes the answer: the
// goroutine that reads the connection only hands the message over.

// A Client is the client of a connection of this node.
type Client interface {
	Describe() Conn // for a listing
	Called() Called // for a call to the client
}

// A Called is what a call to a client needs of its connection.
type Called struct {
	ConnID  string
	WS      *wsconn.Conn
	Format  envelope.Format
	Calls   *calls.Outgoing[wsconn.Message] // to the client
	Closed  <-chan struct{}                 // is closed with the connection
	Greeted bool                            // the client knows timeouts and $ws:abort
	Traced  bool                            // the client has asked for the trace contexts of calls
}

// errNoReply ends a call to a client after Config.Timeout.
var errNoReply = &errors.Error{Code: errors.DeadlineExceeded, Message: "the client has not answered in time"}

// call sends a call to a client and waits for the answer, which the caller must release.
func (n *Node) call(ctx context.Context, c *Called, m envelope.Message, start time.Time) (answer wsconn.Message, err error) {
	if err := c.endOfWait(ctx); err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.config.Timeout, errNoReply)
	defer cancel()
	call, open := c.Calls.Begin(n.config.Concurrency)
	if call == nil {
		return answer, &Limit{Kind: limitConcurrency, Observed: int64(open), Limit: int64(n.config.Concurrency)}
	}
	if err := n.send(ctx, c, call.ID, m, start); err != nil {
		if answer, ok := c.Calls.End(call); ok {
			answer.Release() // the client has guessed the ID
		}
		return answer, err
	}
	answer, ok := c.Calls.Await(call, ctx.Done(), c.Closed)
	if ok {
		return answer, nil
	}
	if c.Greeted {
		c.abort(call.ID)
	}
	return answer, c.endOfWait(ctx)
}

// endOfWait returns why a caller must stop waiting, or nil. A message's context ends with
// its connection, so the connection comes first.
func (c *Called) endOfWait(ctx context.Context) error {
	select {
	case <-c.Closed:
		return wsconn.ErrClosed
	default:
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
}

// send queues a call, which may be a *Message. While the send queue is full, it waits until ctx is done.
func (n *Node) send(ctx context.Context, c *Called, id string, m envelope.Message, start time.Time) error {
	head := wire.OutgoingHead{CorrelationID: id, At: start}
	if deadline, ok := ctx.Deadline(); ok && c.Greeted {
		head.TimeoutMs = max(1, failure.Ceil(deadline.Sub(start), time.Millisecond))
	}
	encoded, _ := m.(*Message)
	if c.Traced {
		trace := n.config.Spans.Inject(ctx)
		if encoded != nil {
			trace = encoded.Trace
		}
		head.Trace = &trace
	}
	err := c.WS.QueueTurn(func() (*wsconn.Frame, error) {
		if encoded != nil {
			return n.encodeHead(encoded, c.Format, head)
		}
		return envelope.Encode(n.config.Formats.Codec(c.Format), m, head)
	}, ctx.Done(), nil)
	c.WS.Wake()
	if tooLong, ok := err.(*wsconn.TooLong); ok { //nolint:errorlint // never wrapped
		return queueExceeded(tooLong.Bytes, tooLong.Limit)
	}
	if err == wsconn.ErrCanceled { //nolint:errorlint // as above
		return c.endOfWait(ctx)
	}
	return err
}

// abort notifies the client that its answer is not needed. It does not wait: without room in the send queue, the client
// is not notified.
func (c *Called) abort(id string) {
	frame := envelope.EncodeControl(c.Format != envelope.JSON, protocol.TypeAbort, id)
	frame.Droppable("")
	frame.SetPolicy(wsconn.DropNewest)
	_ = c.WS.Queue(frame)
	c.WS.Wake()
}

func queueExceeded(size, limit int) error {
	return &Limit{Kind: limitQueue, Observed: int64(size), Limit: int64(limit), RetryAfter: errors.Never}
}

// outcomeOf calls a client of this node, with a *Message for another node.
func (n *Node) outcomeOf(ctx context.Context, client Client, m envelope.Message) (o Outcome) {
	c := client.Called()
	answer, err := n.call(ctx, &c, m, time.Now())
	if err != nil {
		return Outcome{Err: err}
	}
	defer answer.Release()
	if answer.Binary {
		o.Subprotocol = n.config.Formats.Subprotocol(c.Format)
	}
	o.Message = bytes.Clone(answer.Bytes)
	return o
}

// encode encodes a message for other nodes in all formats in which that is possible, or returns the error. The message
// must be shorter than Config.QueueBytes, which are assumed to be those of other nodes, too.
func (n *Node) encode(ctx context.Context, m envelope.Message) (*Message, error) {
	formats, encoded, now := n.config.Formats, &Message{Trace: n.config.Spans.Inject(ctx)}, time.Now()
	var failed error
	for f := range formats.End() {
		head := wire.OutgoingHead{At: now}
		frame, err := envelope.Encode(formats.Codec(f), m, head)
		if err != nil {
			failed = failure.Join(failed, err)
			continue
		}
		if size := len(frame.Text()); size > n.config.QueueBytes {
			frame.Release()
			return nil, queueExceeded(size, n.config.QueueBytes)
		}
		head.Type, _ = envelope.MessageType(m) // Encode has called it
		encoded.Type = head.Type
		encoded.Payloads = append(encoded.Payloads, Payload{Subprotocol: formats.Subprotocol(f), Bytes: bytes.Clone(envelope.Payload(frame, f, head))})
		frame.Release()
	}
	if encoded.Type == "" {
		return nil, failed
	}
	return encoded, nil
}

// MessageType returns the type of the message.
func (m *Message) MessageType() string { return m.Type }

// encodeHead encodes a message that another node has encoded, except for the head.
func (n *Node) encodeHead(m *Message, f envelope.Format, head wire.OutgoingHead) (*wsconn.Frame, error) {
	head.Type = m.Type
	subprotocol := n.config.Formats.Subprotocol(f)
	for _, p := range m.Payloads {
		if p.Subprotocol == subprotocol {
			return envelope.EncodePayload(f != envelope.JSON, p.Bytes, head), nil
		}
	}
	err := fmt.Errorf("router: call %s: the calling node has not encoded it for the subprotocol %q; all nodes must have the same Options.Codecs", m.Type, subprotocol)
	return nil, &errors.Error{Code: errors.Internal, Err: err}
}
