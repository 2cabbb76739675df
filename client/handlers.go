//go:build !js

package client

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
)

// handlers are the functions that the application has registered. The client's lock guards them.
type handlers struct {
	on     map[string][]*Handler // by type; "" is any
	served map[string]server     // by type
	// serving holds the calls of the server whose handlers have not returned.
	serving map[servedCall]context.CancelFunc
}

// A servedCall identifies a call of the server: each connection has IDs of its own.
type servedCall struct {
	conn *conn
	id   string
}

// A Handler handles the messages of one type. Create it with [HandlerFor].
type Handler struct {
	typ    string
	handle func(*Received) error
}

// HandlerFor returns a Handler that calls handle with each message of the type M, for
// [SubscribeOptions].Handlers. It runs like a function that is registered with [On].
func HandlerFor[M Message](handle func(M, *Received)) Handler {
	var zero M
	return Handler{zero.MessageType(), func(r *Received) error {
		var m M
		if err := r.Decode(&m); err != nil {
			return err
		}
		handle(m, r)
		return nil
	}}
}

// A Received says where a message comes from.
type Received struct {
	Type     string
	Topic    string    // of a publication; "" if the message was sent to this client only
	Position Position  // the zero Position if it has none; without Epoch if only a handler of the server has subscribed the client
	At       time.Time // when the server has sent it, by the clock of the server
	State    bool      // the message is the current state of its key, older than Position says

	payload payload
}

// Decode decodes the payload into the value that v points to.
func (r *Received) Decode(v any) error { return r.payload.decode(v) }

// On calls handle with every message of the type M that the server sends, publications included. All
// handlers of a client run on one goroutine, in the order of the messages: a slow handler delays those
// behind it. A handler may call Call, Send and Subscribe. The returned function ends it.
func On[M Message](c *Client, handle func(M, *Received)) (stop func()) {
	h := HandlerFor(handle)
	return c.on(&h)
}

// OnAny calls handle with every message that a function registered with [On] could handle, whatever its
// type, after those functions. It serves logs and tools. The returned function ends it.
func (c *Client) OnAny(handle func(*Received)) (stop func()) {
	return c.on(&Handler{handle: func(r *Received) error { handle(r); return nil }})
}

func (c *Client) on(h *Handler) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers.on[h.typ] = append(c.handlers.on[h.typ], h)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.handlers.on[h.typ] = slices.DeleteFunc(slices.Clone(c.handlers.on[h.typ]), func(other *Handler) bool { return other == h })
	}
}

// handlersOf returns the handlers of a type. The caller must not change them.
func (c *Client) handlersOf(typ string) []*Handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.handlers.on[typ]
}

// handle calls the functions that are registered with On and OnAny for a message.
func (c *Client) handle(r *Received) {
	for _, typ := range [...]string{r.Type, ""} {
		for _, h := range c.handlersOf(typ) {
			if slices.Contains(c.handlersOf(typ), h) { // the one before may have ended it
				c.callHandler(h, r)
			}
		}
	}
}

func (c *Client) callHandler(h *Handler, r *Received) {
	c.guard("handler of "+r.Type, func() {
		if err := h.handle(r); err != nil {
			c.report(r.Type, &errors.Error{Code: errors.Internal, Message: "the message cannot be decoded", Err: err})
		}
	})
}

// A server answers calls of the server.
type server func(ctx context.Context, p payload) (reply Message, err error)

// maxServing bounds the calls of the server that are handled at the same time.
const maxServing = 64

// Handle answers calls of the server with the type Req. Each call has a goroutine. ctx ends when the
// server no longer waits, or the connection is lost. The server receives the Code, the Message, the
// Details and the RetryAfter of an [*errors.Error], and only the code INTERNAL for other errors and
// after a panic. Handle replaces the function that was registered before.
func Handle[Req, Reply Message](c *Client, handle func(context.Context, Req) (Reply, error)) {
	typ := reflect.New(reflect.TypeFor[Req]()).Elem().Interface().(Message).MessageType() //nolint:forcetypeassert // Req is a Message
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers.served[typ] = func(ctx context.Context, p payload) (Message, error) {
		var req Req
		if err := p.decode(&req); err != nil {
			return nil, &errors.Error{Code: errors.InvalidArgument, Message: "the call cannot be decoded", Err: err}
		}
		return handle(ctx, req)
	}
}

// receiveServerCall handles a call of the server, or the message by which the server cancels one.
func (c *Client) receiveServerCall(cn *conn, e *envelope) {
	id := e.Meta.CorrelationID
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Type == protocol.TypeAbort {
		if cancel := c.handlers.serving[servedCall{cn, id}]; cancel != nil {
			cancel()
		}
		return
	}
	serve := c.handlers.served[e.Type]
	switch {
	case serve == nil:
		cn.sendControlLocked(protocol.TypeRPCError, id, -1, errorPayload(errors.Errorf(errors.Unimplemented, "the client does not handle %s", e.Type)))
		return
	case len(c.handlers.serving) >= maxServing:
		cn.sendControlLocked(protocol.TypeRPCError, id, -1, errorPayload(errors.Errorf(errors.ResourceExhausted, "the client handles %d calls already", maxServing)))
		return
	}
	ctx, cancel := cn.ctx, context.CancelFunc(nil)
	if ms := e.Meta.TimeoutMs; ms > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	c.handlers.serving[servedCall{cn, id}] = cancel
	go c.serveCall(ctx, cn, e, serve)
}

// serveCall calls a handler and sends the answer, unless the server no longer waits for it.
func (c *Client) serveCall(ctx context.Context, cn *conn, e *envelope, serve server) {
	id := e.Meta.CorrelationID
	typ, answer := protocol.TypeRPCError, errorPayload(errors.Errorf(errors.Internal, "the client has failed"))
	defer func() { // even if the handler does not return
		c.mu.Lock()
		defer c.mu.Unlock()
		if ctx.Err() == nil {
			cn.sendControlLocked(typ, id, -1, answer)
		}
		c.handlers.serving[servedCall{cn, id}]()
		delete(c.handlers.serving, servedCall{cn, id})
	}()
	c.guard("handler of a call", func() { typ, answer = c.encodeAnswer(serve(c.extractTrace(ctx, &e.Meta), e.content())) })
}

// encodeAnswer returns the answer to a call of the server. It calls functions of the application.
func (c *Client) encodeAnswer(reply Message, err error) (typ string, payload []byte) {
	if err == nil {
		payload, err = c.encode(reply)
	}
	if err != nil {
		return protocol.TypeRPCError, errorPayload(err)
	}
	return reply.MessageType(), payload
}

// errorPayload returns what the server may learn about an error.
func errorPayload(err error) []byte {
	payload, err := jsonplan.Append(nil, publicError(err))
	if err != nil {
		return []byte(`{"code":"INTERNAL","retryable":false}`)
	}
	return payload
}

func publicError(err error) protocol.ErrorPayload {
	e, ok := errors.AsType[*errors.Error](err)
	if !ok {
		return protocol.ErrorPayload{Code: errors.Internal}
	}
	p := protocol.ErrorPayload{Code: e.Code, Message: e.Message, Retryable: e.Retryable()}
	if e.Details != nil {
		p.Details = e.Details
	}
	switch {
	case e.RetryAfter == errors.Never:
		p.RetryAfterMs = jsonv2.Value("null")
	case e.RetryAfter > 0:
		p.RetryAfterMs, _ = jsonv2.Marshal((e.RetryAfter + time.Millisecond - 1).Milliseconds())
	}
	return p
}
